"""docs/options.py: the tables of flags and the types of keywords match the options."""

from __future__ import annotations

import runpy

import pytest

from recordmill.schemas.config import ConvertConfig, SchemaOverrides
from recordmill.schemas.option import options_of
from tests.docs.pages import DOCS

SCRIPT = DOCS / "options.py"


@pytest.fixture(scope="module")
def reference() -> dict[str, object]:
    return runpy.run_path(str(SCRIPT))


def test_the_files_are_current(reference: dict) -> None:
    assert reference["stale"](reference["files"]()) == [], "run python docs/options.py"


def test_every_option_is_on_the_page_and_is_a_keyword(reference: dict) -> None:
    page, types = reference["page"](), reference["types"]()
    for declared in options_of(ConvertConfig, SchemaOverrides):
        assert f"| `--{declared.name}" in page
        assert f"    {declared.name}: " in types or declared.name == "input"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("input", "StrPath | Sequence[StrPath]"),
        ("columns", "Mapping[str, str]"),
        ("splits", "Mapping[str, float | Decimal] | None"),
        ("num_shards", 'Literal["auto"] | int | Mapping[str, int]'),
        ("classes", "StrPath | Sequence[str] | None"),
        ("image_root", "StrPath | None"),
        ("label_offset", "Literal[0, 1] | None"),
    ],
)
def test_the_types_of_keywords(name: str, kind: str, reference: dict) -> None:
    (declared,) = (o for o in options_of(ConvertConfig, SchemaOverrides) if o.name == name)
    assert reference["keyword_type"](declared) == kind
