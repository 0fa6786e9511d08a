"""A format of inputs is the same in the registry, the options, the pages and the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.inputs.formats import FORMATS, Format, format_of
from tests.end_to_end.sources import ANNOTATED, CAPTIONED, SINGLE_LABEL
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]

# Tables of text have images by path, and the tests of their own: tests/end_to_end/test_tables.py.
TEXT_TABLES = {"csv", "tsv", "jsonl"}


def _names_in(page: str, pattern: str) -> set[str]:
    found = re.search(pattern, (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page}: no text like {pattern}"
    return set(re.findall(r"[a-z]+", found[1]))


def _first_cells(page: str, header: str) -> Iterator[str]:
    """Yields the code in the first column of a table."""
    rows = (ROOT / page).read_text("utf-8").partition(header)[2].splitlines()
    for row in rows[2:]:
        if not row.startswith("|"):
            return
        yield from re.findall(r"`(\w+)`", row.split("|")[1])


@pytest.mark.parametrize("known", FORMATS.values(), ids=FORMATS)
def test_the_module_of_a_format_has_its_functions(known: Format) -> None:
    functions = {"probe", "read"} | ({"sources_in"} if known.declared.is_folder else set())
    columns = {"COLUMNS"} if known.declared.title else set()  # for the page
    assert functions | columns <= vars(known.reader).keys()


def test_the_reference_lists_every_format() -> None:
    page = "docs/reference/sources.md"
    formats = list(_first_cells(page, "| Format | What it is | Columns |"))
    annotated = list(_first_cells("docs/reference/annotations.md", "| Format | What it is |"))
    assert sorted([*formats, *annotated]) == sorted(FORMATS)
    columns = _names_in(page, r"## Which schema goes with which source\n\n\| ([^\n]*)")
    assert columns | TEXT_TABLES == {*formats}


def test_every_format_of_annotations_has_a_section() -> None:
    text = (ROOT / "docs/reference/annotations.md").read_text("utf-8")
    titles = {known.declared.title for known in FORMATS.values()} - {""}
    assert titles - set(re.findall(r"^## (.*)$", text, re.MULTILINE)) == set(), "Add a section"


def test_every_format_has_a_fuzz_target_with_a_corpus() -> None:
    assert FORMATS.keys() <= TARGETS.keys()
    folders = {path.name for path in (ROOT / "tests/fuzz/corpus").iterdir() if any(path.iterdir())}
    assert folders == TARGETS.keys(), "Run python -m tests.fuzz.seeds"


def test_every_format_is_converted_with_every_schema() -> None:
    forms = {re.split(r"[ .]", name)[0] for name in (*SINGLE_LABEL, *ANNOTATED, *CAPTIONED)}
    assert set(FORMATS) - TEXT_TABLES <= forms, "Add FORMS to the unit test, as in test_dota.py"


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_with_the_name_of_a_format_have_it(suffix: str) -> None:
    if suffix in FORMATS[suffix].declared.suffixes:  # that of COCO is json
        assert format_of(f"x.{suffix}", b"") == suffix
