"""Generates metadata.json, which declares the parameters of the Flex Template.

    python -m deploy.dataflow.metadata            writes metadata.json beside this file
    python -m deploy.dataflow.metadata --check    fails if metadata.json is out of date

The parameters are the flags of `recordmill convert`, taken from its parser, with the patterns of
the configuration model. The format is `TemplateMetadata` of the Dataflow API v1b3.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recordmill.pipelines.parser import add_convert_options
from recordmill.schemas.config import ConvertConfig

PATH = Path(__file__).with_name("metadata.json")
COMMAND = "python -m deploy.dataflow.metadata"

_DESCRIPTION = (
    "Converts label tables and images to verified TFRecord datasets: a dataset is published only "
    "after every record has been read back and the row counts match."
)
_URL = r"^[a-z][a-z0-9+.-]*://.+$"
_IMAGE = {
    "name": "sdk_container_image",
    "label": "Container of the workers",
    "helpText": "Default: the image of the template, which has the same version of recordmill.",
    "isOptional": True,
    "paramType": "TEXT",
}


def document() -> dict[str, Any]:
    """Returns the content of metadata.json."""
    return {
        "name": "recordmill convert",
        "description": _DESCRIPTION,
        "parameters": [*parameters_of(flags()), _IMAGE],
    }


def flags() -> dict[str, argparse.Action]:
    """Returns the flags of `recordmill convert` by name."""
    parser = argparse.ArgumentParser(add_help=False)
    add_convert_options(parser)
    return {flag.option_strings[0].removeprefix("--"): flag for flag in parser._actions}


def parameters_of(flags: Mapping[str, argparse.Action]) -> list[dict[str, Any]]:
    """Returns the parameters of the template: one per flag, or per pair of opposite switches."""
    opposites = {opposite_of(name) for name in flags}
    return [parameter_of(name, flag) for name, flag in flags.items() if name not in opposites]


def opposite_of(name: str) -> str:
    """Returns the name of the switch that negates another one.

    >>> opposite_of("report")
    'no_report'
    """
    return f"no_{name}"


def parameter_of(name: str, flag: argparse.Action) -> dict[str, Any]:
    """Returns the template parameter of a flag.

    Args:
        name: of the parameter.
        flag: the command-line flag.
    """
    metavar = f" ({flag.metavar})" if isinstance(flag.metavar, str) else ""
    parameter: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize() + metavar,
        "helpText": _help(flag),
        "isOptional": not flag.required,
        "paramType": "TEXT",
    }
    if is_switch(flag):
        parameter["paramType"] = "BOOLEAN"
    elif flag.choices:
        parameter["paramType"] = "ENUM"
        parameter["enumOptions"] = [{"value": value, "label": value} for value in flag.choices]
    elif pattern := _pattern(name):
        parameter["regexes"] = [pattern]
    return parameter


def is_switch(flag: argparse.Action) -> bool:
    """Returns whether a flag takes no value."""
    return flag.nargs == 0


def to_json(content: dict[str, Any]) -> str:
    """Returns the text of the file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or checks the file; returns the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write metadata.json.")
    parser.add_argument("--check", action="store_true", help="only check whether it is up to date")
    content = to_json(document())
    if not parser.parse_args(argv).check:
        PATH.write_text(content, encoding="utf-8")
        return 0
    if PATH.read_text(encoding="utf-8") == content:
        return 0
    print(
        f"{PATH.name}: does not match the flags of recordmill convert. Run: {COMMAND}",
        file=sys.stderr,
    )
    return 1


def _help(flag: argparse.Action) -> str:
    text = (flag.help or "").replace("%%", "%")
    more_than_one = isinstance(flag, argparse._AppendAction)
    return f"{text}; only one in a template: use a pattern" if more_than_one else text


@cache
def _settings() -> dict[str, Any]:
    """Returns the JSON schema of each setting."""
    properties: dict[str, Any] = ConvertConfig.model_json_schema()["properties"]
    return properties


def _pattern(name: str) -> str | None:
    """Returns a regular expression for the value of a flag, or None."""
    if name in ("input", "output", "image_root", "labels", "base"):
        return _URL  # workers cannot read files of the launcher
    setting = _settings().get(name, {})
    pattern: str | None = setting.get("pattern")
    return r"^-?\d+$" if setting.get("type") == "integer" else pattern


if __name__ == "__main__":
    sys.exit(main())
