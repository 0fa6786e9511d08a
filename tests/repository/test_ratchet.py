"""Budgets for what has to be held in one head; they may only fall.

`python -m benchmarks.structure --names` lists what is counted.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from benchmarks.structure import code_lines, docstring_lines, figures, parsed
from recordmill.schemas.config import ConvertConfig, SchemaOverrides
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.option import options_of
from recordmill.schemas.rejects import Reason
from recordmill.schemas.shard_format import SHARD_FORMATS

ROOT = Path(__file__).parents[2]

BUDGETS = {
    "product files": 198,
    "lines of code": 35_722,
    "lines of docstrings": 6_215,
    "lines of the longest function": 50,
    "lines of the longest file": 584,
    "public functions used in no other file": 0,
    "modules with one importer": 24,
    "names with two meanings": 0,
    "import cycles between folders": 0,
}

# The modules of input formats that are in these budgets; what another one may add to the figures.
OF_FORMATS = {
    *("arrow", "class_folder", "coco", "cvat", "delimited", "dota", "json_lines", "labelme"),
    *("parquet", "tfrecord", "voc", "webdataset", "yolo"),
}
NEW_FORMATS = sorted({known.module for known in INPUT_FORMATS.values()} - OF_FORMATS)
OF_NEW_FORMAT = {"product files": 1, "lines of code": 250, "lines of docstrings": 30}

# What is declared in one place: how many are in these budgets, how many there are, and the lines of
# code and of docstrings that another one may add: for a format of inputs, besides its module, also
# what it shares with another one.
DECLARED = {
    "input formats": (14, len(INPUT_FORMATS), 12, 2),
    "options": (59, len([*options_of(ConvertConfig, SchemaOverrides)]), 12, 0),
    "rejection reasons": (29, len(Reason), 16, 1),
    "formats of shards": (2, len(SHARD_FORMATS), 90, 6),
}

# A budget is lowered once the figure is this far below it.
SLACK = 0.95

measured = cache(figures)


def added_by(module: str) -> dict[str, int]:
    """Returns the figures of the module of a format."""
    text = (ROOT / "transforms/functional/sources" / f"{module}.py").read_text("utf-8")
    docstrings = len(docstring_lines(parsed(text)))
    return dict(zip(OF_NEW_FORMAT, (1, code_lines(text), docstrings), strict=True))


def test_a_new_format_is_small() -> None:
    for module in NEW_FORMATS:
        for name, figure in added_by(module).items():
            assert figure <= OF_NEW_FORMAT[name], f"{module}: {figure:,} {name}"


@pytest.mark.parametrize("name", BUDGETS)
def test_no_figure_exceeds_its_budget(name: str) -> None:
    figure = measured(ROOT)[name] - sum(added_by(module).get(name, 0) for module in NEW_FORMATS)
    allowed = BUDGETS[name]
    for known, found, code, docstrings in DECLARED.values():
        added = {"lines of code": code, "lines of docstrings": docstrings}
        allowed += (found - known) * added.get(name, 0)
    assert figure <= allowed, f"{name}: {figure:,}, {allowed:,} allowed. Remove some."


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets_are_lowered_with_the_figures(name: str) -> None:
    figure = measured(ROOT)[name]
    assert figure >= int(BUDGETS[name] * SLACK), f"{name}: lower its budget to {figure:,}."


def test_every_figure_has_a_budget() -> None:
    assert measured(ROOT).keys() == BUDGETS.keys()
