"""GroupByShard: each shard gets its references, whether they wait in memory or in spill files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas import layout
from recordmill.schemas.records import ImageRef
from recordmill.transforms import elements
from recordmill.transforms.elements import AssignedRows, EncodedRefs, ShardId, joined
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.write_shards import GroupByShard
from tests.beam.direct import direct_pipeline, ref

ROWS = 60
SHARDS = [("train", 0), ("train", 1), ("test", 0)]
EMPTY = ("test", 1)


def ordered(number: int) -> tuple[bytes, ImageRef]:
    return bytes([number]), ref(f"{number}.jpg", number)


def assigned() -> list[AssignedRows]:
    """Returns ten references in each batch, spread over all shards."""
    found = []
    for start in range(0, ROWS, 10):
        for i, shard in enumerate(SHARDS):
            numbers = [n for n in range(start, start + 10) if n % len(SHARDS) == i]
            found.append((shard, OrderedRefs.of(map(ordered, numbers))))
    return found


def rows_of_shard(element: tuple[ShardId, Iterable[EncodedRefs]]) -> tuple[ShardId, list[str]]:
    shard, found = element
    rows = sorted(joined(found))
    assert all(row == ordered(row[1].line) for row in rows)
    return shard, [row.key for _, row in rows]


EXPECTED = [
    (EMPTY, []),
    *((shard, [f"{n}.jpg" for n in range(i, ROWS, 3)]) for i, shard in enumerate(SHARDS)),
]


@pytest.mark.parametrize(
    ("gathered", "spills", "files"),
    [
        pytest.param(2**20, True, 0, id="few"),
        pytest.param(1, True, 18, id="every batch"),
        pytest.param(1_000, True, 3, id="several batches"),
        pytest.param(1_000, False, 0, id="in memory"),
    ],
)
def test_each_shard_gets_its_references(
    gathered: int,
    spills: bool,
    files: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elements, "_GATHERED_BYTES", gathered)
    run = tmp_path / "run"
    with direct_pipeline() as p:
        planned = p | "Planned" >> beam.Create([*SHARDS, EMPTY])
        group = GroupByShard(str(run) if spills else "", planned)
        rows = p | "Rows" >> beam.Create(assigned()) | group
        assert_that(rows | beam.Map(rows_of_shard), equal_to(EXPECTED))
    found = list(run.rglob("*/*"))
    assert len(found) == files
    assert all(file.parent.name == layout.STAGING for file in found)


def test_shards_without_rows_are_absent_unless_they_are_planned() -> None:
    with direct_pipeline() as p:
        rows = p | "Rows" >> beam.Create(assigned()) | GroupByShard(scratch="")
        assert_that(rows | beam.Map(rows_of_shard), equal_to(EXPECTED[1:]))
