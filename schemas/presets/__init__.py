"""The presets, one YAML file each, and the reading of schemas in that form."""

from __future__ import annotations

from importlib import resources

import yaml
from pydantic import ValidationError

from schemas.errors import UsageError
from schemas.features import Schema


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
        raise UsageError(
            f"--schema {name}: no preset has this name and no file is there; "
            f"expected a YAML file or one of: {', '.join(preset_names())}"
        )
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_schema(text, f"preset {name}")


def parse_schema(text: str, where: str) -> Schema:
    """Returns the schema that a YAML text declares.

    Args:
        text: the YAML document.
        where: what to call it in messages, such as the file's name.

    Raises:
        UsageError: if the text is no YAML, or no schema.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: not a YAML file: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{where}: expected a mapping with the key 'features', got {document!r}")
    try:
        return Schema.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{where}: {_describe(error)}") from error


def _describe(error: ValidationError) -> str:
    """Returns the first problem of a schema in one line: where in the document, then what."""
    first = error.errors()[0]
    where = " > ".join(str(part) for part in first["loc"]) or "the schema"
    return f"at {where}: {first['msg'].removeprefix('Value error, ')}, got {first['input']!r}"
