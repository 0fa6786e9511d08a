"""The workloads: what is converted, by which baselines, and what their rates are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import write_table, write_tabular, write_tiny_images


@dataclass(frozen=True)
class Workload:
    """A kind of table, and the baselines that convert it.

    Attributes:
        name: in commands and results.
        rows: default number of rows.
        write: writes a table at a path, of the given photographs and number of rows.
        baselines: names of the baselines.
        reference: the baseline whose rate is 1.
        unit: name of a row, "images" or "rows".
    """

    name: str
    rows: int
    write: Callable[[Path, Sequence[Path], int], Path]
    baselines: tuple[str, ...]
    reference: str
    unit: str = "images"


PHOTOGRAPHS = Workload(
    name="photographs",
    rows=10_000,
    write=write_table,
    baselines=(
        "bare-decode",
        "recordmill",
        "recordmill-header",
        "tutorial-loop",
        "plain-beam",
        "tfds-plain",
        "tfds-beam",
        "hf-datasets",
        "webdataset-writer",
        "img2dataset-files",
        "litdata-optimize",
    ),
    reference="bare-decode",
)
TINY_IMAGES = Workload(
    name="tiny-images",
    rows=30_000,
    write=lambda path, _, count: write_tiny_images(path, count),
    baselines=(
        "tfds-plain",
        "recordmill-folder",
        "tutorial-loop",
        "hf-datasets",
        "webdataset-writer",
        "litdata-optimize",
    ),
    reference="tfds-plain",
)
TABULAR = Workload(
    name="tabular",
    rows=300_000,
    write=lambda path, _, count: write_tabular(path, count),
    baselines=("tutorial-loop-tabular", "recordmill-tabular"),
    reference="tutorial-loop-tabular",
    unit="rows",
)
WORKLOADS = {workload.name: workload for workload in (PHOTOGRAPHS, TINY_IMAGES, TABULAR)}
