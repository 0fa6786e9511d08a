"""The presets, one YAML file each, and the reading of schemas in that form."""

from __future__ import annotations

from importlib import resources

from pydantic import ValidationError

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.yaml_loader import first_problem, load_yaml, shortened


def preset_names() -> list[str]:
    """Returns the names of all presets, sorted."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name[: -len(".yaml")] for f in files if f.name.endswith(".yaml"))


def preset(name: str) -> Schema:
    """Returns the preset of that name.

    Raises:
        UsageError: if there is none.
    """
    if name not in preset_names():
        names = preset_names()
        raise UsageError(
            f"--schema {name}: no preset has this name and no file is there"
            f"{did_you_mean(name, names)}; expected a YAML file or one of: {', '.join(names)}"
        )
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_schema(text, f"preset {name}")


def parse_schema(text: str | bytes, where: str) -> Schema:
    """Returns the schema that a YAML text declares.

    Args:
        text: the YAML document.
        where: what to call it in messages, such as the file's name.

    Raises:
        UsageError: if the text is no YAML, or no schema.
    """
    node, document = load_yaml(text, where)
    if node is None or not isinstance(document, dict):
        raise UsageError(
            f"{where}: expected a mapping with the key 'features', got {shortened(document)}"
        )
    try:
        return Schema.model_validate(document)
    except ValidationError as error:
        place, problem = first_problem(error, Schema, node)
        raise UsageError(f"{where}{place}: {problem}") from error
