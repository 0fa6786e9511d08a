"""A config for each option with another value than its default, found by trying some."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.option import options_of
from recordmill.schemas.yaml_files import preset

OPTIONS = {declared.name: declared for declared in options_of(ConvertConfig)}

_BASE = {"base": "out/birds/0.9.0"}
_JOIN = {"labels": "l.csv", "join_on": "id"}

# Options that some need.
_NEEDED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_JOIN, _JOIN),
    "append": _BASE,
    "on_conflict": {**_BASE, "append": True},
    "list_unused_images": {"image_root": "images"},
}

_TRIED = (True, False, 2, "x", ".x", ";", {"x": 1}, {"x": "y"}, ("x",))

# Values of options that accept none of these.
_VALUES = {
    "schema": preset("tf_slim"),
    "version": "1.0.1",
    "where": "label == 'cat'",
    "reject_quality": "blank",
    "homepage": "https://example.com",
}


def config(**options: Any) -> ConvertConfig:
    """Returns a config of some options, and of those that are required."""
    return ConvertConfig(**{"input": ("t.csv",), "output": "out", "name": "birds", **options})


def with_and_without(option: str) -> tuple[ConvertConfig, ConvertConfig]:
    """Returns two configs that differ only in the value of one option."""
    needed, choices = _NEEDED.get(option, {}), OPTIONS[option].choices or ()
    without = config(**needed)
    for value in (_VALUES[option],) if option in _VALUES else (*choices, *_TRIED):
        try:
            other = config(**{**needed, option: value})
        except ValidationError:
            continue
        if other != without:
            return other, without
    raise AssertionError(f"give --{option} a value in {__file__}")
