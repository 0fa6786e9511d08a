"""The files that describe the shards: schemas for TensorFlow's tools, croissant.json, the card.

README.md is the card of a dataset, which dataset hubs and people read. Its front matter is that of
the Hugging Face Hub's (https://github.com/huggingface/hub-docs/blob/main/datasetcard.md).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from recordmill.pipelines.croissant import croissant_document
from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.pipelines.report.statistics import shape_text
from recordmill.schemas import layout, tensorflow_metadata
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, manifest_of
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.masking import masked, visible
from recordmill.schemas.option import RESPONSIBLE_AI

# Number of class names in the card; all of them are in a file beside it.
_SHOWN_CLASSES = 20

# The Hub's size categories: the number of records from which each begins.
_SIZES = (
    (10**12, "n>1T"),
    (10**11, "100B<n<1T"),
    (10**10, "10B<n<100B"),
    (10**9, "1B<n<10B"),
    (10**8, "100M<n<1B"),
    (10**7, "10M<n<100M"),
    (10**6, "1M<n<10M"),
    (10**5, "100K<n<1M"),
    (10**4, "10K<n<100K"),
    (10**3, "1K<n<10K"),
    (0, "n<1K"),
)


def sidecars(info: DatasetInfo, config: ConvertConfig) -> dict[str, bytes]:
    """Returns the files that describe the shards: content by file name."""
    resolved = info.plan.resolved
    files = {layout.SCHEMA: tensorflow_metadata.schema_text(resolved).encode("utf-8")}
    for feature, names in resolved.classes.items():
        if names:
            files[layout.labels_name(feature)] = "".join(f"{n}\n" for n in names).encode("utf-8")
    if config.shard_format.in_tfds and resolved.schema.sequence is None:
        # TFDS does not read SequenceExamples.
        files[layout.FEATURES] = _json(tensorflow_metadata.features_document(resolved))
        lengths = {
            split: [(s.entry.records, s.entry.payload) for s in info.shards if s.split == split]
            for split in info.plan.shards
        }
        document = tensorflow_metadata.dataset_info_document(config, resolved.schema, lengths)
        files[layout.DATASET_INFO] = _json(document)
    files[layout.CROISSANT] = _json(croissant_document(info, config, digests_of(files)))
    files[layout.DATASET_CARD] = _dataset_card(info, config)
    return files


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Returns the sha256 of files, by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


@cache
def _card_template() -> Template:
    environment = Environment(
        loader=PackageLoader("recordmill.pipelines.report"),
        autoescape=False,  # noqa: S701 - Markdown, which the Hub sanitizes
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        literal=_literal, code=_code, shape=shape_text, labels_name=layout.labels_name
    )
    return environment.get_template("dataset_card.md")


def _dataset_card(info: DatasetInfo, config: ConvertConfig) -> bytes:
    """Returns README.md."""
    resolved = info.plan.resolved
    text = _card_template().render(
        front_matter=yaml.safe_dump(
            _front_matter(info, config), sort_keys=False, allow_unicode=True
        ),
        config=config,
        description=config.description or resolved.schema.description,
        splits=[_split(info, split) for split in info.splits],
        example="SequenceExample" if resolved.schema.sequence else "Example",
        features=resolved.schema.features,
        classes={feature: names for feature, names in resolved.classes.items() if names},
        shown=_SHOWN_CLASSES,
        warnings=[found.text for found in _findings(info, config) if found.severity == "warning"],
        responsible={
            name: (value,) if isinstance(value, str) else value
            for name, value in config.croissant.items()
            if name in RESPONSIBLE_AI
        },
    )
    return text.encode("utf-8")


def _findings(info: DatasetInfo, config: ConvertConfig) -> tuple[Finding, ...]:
    """Returns the findings that do not differ from run to run."""
    return findings_of(Outcome(manifest_of(info, config, {})))


def _front_matter(info: DatasetInfo, config: ConvertConfig) -> dict[str, Any]:
    records = sum(counts.records for counts in info.splits.values())
    found: dict[str, Any] = {"pretty_name": config.name}
    if config.license_id:
        found["license"] = config.license_id.lower()  # the Hub's ids are SPDX's in lower case
    elif config.license:
        found |= {"license": "other", "license_name": config.license}
    if tasks := _tasks(info.plan.resolved.schema):
        found["task_categories"] = tasks
    found["size_categories"] = [next(name for least, name in _SIZES if records >= least)]
    found["tags"] = ["tfrecord", "croissant"]
    return found


def _tasks(schema: Schema) -> list[str]:
    """Returns the Hub's names for the tasks that a schema has labels for."""
    if schema.sequence is not None:
        return ["video-classification"] if schema.class_features else []
    if not schema.has_image:
        return ["tabular-classification"] if schema.class_features else []
    if schema.has_boxes:
        return ["object-detection"]
    if schema.mask_feature:
        return ["image-segmentation"]
    return ["image-classification"] if schema.class_features else []


def _split(info: DatasetInfo, split: str) -> dict[str, Any]:
    shards = [shard.entry for shard in info.shards if shard.split == split]
    return {
        "name": split,
        "records": info.splits[split].records,
        "shards": len(shards),
        "mib": sum(shard.bytes for shard in shards) / 2**20,
    }


# What Markdown, or GitHub's dialect, reads as markup in a line; `_` only at the ends of words.
# A list item, a heading or its underline begins a line; an address is a link without brackets.
_MARKUP = re.compile(
    r"[\\`*\[\]<>~|$&@]|(?<![^\W_])_|_(?![^\W_])|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|:(?=//)"
    r"|(?<=www)\."
)


def _literal(text: str) -> str:
    r"""Returns text that Markdown and terminals show as it is, on one line.

    >>> print(_literal("a|b_c"), _literal("![x](y) <b>\x1b"), _literal("1. https://host"))
    a\|b_c !\[x\](y) \<b\>\\x1b 1\. https\://host
    """
    return _MARKUP.sub(r"\\\g<0>", visible(masked(re.sub(r"\s", " ", text.strip()))))


def _code(text: str) -> str:
    r"""Returns a code span, whose delimiters are longer than any row of backticks in the text.

    >>> print(_code("a|b"), _code("x`y"))
    `a\|b` ``x`y``
    """
    shown = visible(masked(re.sub(r"\s", " ", text))).replace("|", "\\|")
    ticks = "`" * (1 + max((len(row) for row in re.findall("`+", shown)), default=0))
    pad = " " * (shown.startswith("`") or shown.endswith("`"))
    return f"{ticks}{pad}{shown}{pad}{ticks}"
