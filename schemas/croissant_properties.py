"""The properties of croissant.json that a user states in a YAML file.

Sources: the dataset-level properties of the Croissant format specification 1.1, and the vocabulary
of its extension for Responsible AI, http://mlcommons.org/croissant/RAI/1.0.
"""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.yaml_files import load_yaml, shortened

Properties: TypeAlias = "dict[str, str | tuple[str, ...]]"

_DATASET = (
    "dateCreated",
    "dateModified",
    "datePublished",
    "inLanguage",
    "keywords",
    "sameAs",
    "sdLicense",
    "sdVersion",
)

# The properties of the extension, which have the prefix `rai:` in croissant.json.
RESPONSIBLE_AI = (
    "annotationsPerItem",
    "annotatorDemographics",
    "dataAnnotationAnalysis",
    "dataAnnotationPlatform",
    "dataAnnotationProtocol",
    "dataBiases",
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataCollectionTimeframe",
    "dataCollectionType",
    "dataImputationProtocol",
    "dataLimitations",
    "dataManipulationProtocol",
    "dataPreprocessingProtocol",
    "dataReleaseMaintenancePlan",
    "dataSocialImpact",
    "dataUseCases",
    "machineAnnotationTools",
    "personalSensitiveInformation",
)

NAMES = (*_DATASET, *RESPONSIBLE_AI)


def parse_properties(text: str | bytes, where: str) -> Properties:
    """Parses a YAML file of properties.

    Returns the text, or the texts, of each property. `text` is the YAML document: a mapping of
    names to texts, dates, or lists of these. `where` is the name of the document in messages, such
    as its path. Raises UsageError if the text is not YAML, or has an unknown property, or no text
    for one.
    """
    _, document = load_yaml(text, where)
    if not isinstance(document, dict):
        raise UsageError(
            f"{where}: expected a mapping such as 'keywords: [birds]', got {shortened(document)}"
        )
    return {name: _value(name, value, where) for name, value in document.items()}


def _value(name: Any, value: Any, where: str) -> str | tuple[str, ...]:
    if name not in NAMES:
        guess = did_you_mean(str(name), NAMES)
        raise UsageError(
            f"{where}: unknown property {name!r}{guess}; available: {', '.join(NAMES)}"
        )
    items = value if isinstance(value, list) else [value]
    # YAML loads unquoted dates as such; str() returns them as they were written.
    if not items or not all(isinstance(item, str | datetime.date) and str(item) for item in items):
        raise UsageError(
            f"{where}: at {name}: expected a text, a date, or a list of them, "
            f"got {shortened(value)}. Quote numbers."
        )
    texts = tuple(str(item) for item in items)
    return texts if isinstance(value, list) else texts[0]
