"""FindSample and SampleRows: exactly the number of rows that is asked for, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas import layout
from recordmill.schemas.records import OUTSIDE_SAMPLE, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.placement import Sampler
from recordmill.transforms.read_rows import ListSources, ReadOutcome, ReadRows
from recordmill.transforms.select_ranks import FindSample, SampleRows
from tests.beam.direct import SCHEMA, TABLE, config, direct_pipeline, flat

ROWS = [Row({"image": f"{i}.jpg"}, TABLE, i + 2, True) for i in range(300)]
REJECTS = [Reject.of_malformed_row(TABLE, line, "why") for line in range(500, 520)]


def sampler(sample: Any) -> Sampler:
    settings = config(sample=sample)
    return Sampler.of(settings, Binding.of(settings, SCHEMA))


def only(expected: int) -> Callable[[list[Any]], None]:
    def check(found: list[Any]) -> None:
        assert len(found) == expected

    return check


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (100, 100), (1_000, 320)])
def test_a_number_of_rows_is_met_with_those_that_cannot_be_read(rows: int, expected: int) -> None:
    with direct_pipeline() as p:
        batches = [RowBatch.of(ROWS[i : i + 50]) for i in range(0, 300, 50)]
        read = ReadOutcome(
            p | "Rows" >> beam.Create(batches) | beam.Reshuffle(),
            p | "Rejects" >> beam.Create(REJECTS),
            p | "Skipped" >> beam.Create([("files", SkippedInput("files", 2, ("a", "b")))]),
        )
        sample = read | FindSample(sampler(rows), rows)
        found = read | SampleRows(sample)
        both = (flat(found.good), found.rejects) | beam.Flatten()
        assert_that(both, only(expected), label="Rows in the sample")
        outside = (
            [(OUTSIDE_SAMPLE, SkippedInput(OUTSIDE_SAMPLE, 320 - expected))]
            if expected < 320
            else []
        )
        sums = found.skipped | beam.CombinePerKey(SkippedInput.sum_of)
        files = ("files", SkippedInput("files", 2, ("a", "b")))
        assert_that(sums, equal_to([files, *outside]), label="Skipped")


def test_only_images_in_the_sample_are_staged(tmp_path: Path) -> None:
    images = [{"bytes": bytes([i]) * 10, "path": f"{i}.png"} for i in range(200)]
    pq.write_table(pa.table({"image": images}), tmp_path / "t.parquet")
    files = (TableFile(str(tmp_path / "t.parquet"), "parquet"),)
    found = sampler("10%")
    expected = [
        image["path"] for image in images if found.has(Row({"image": image["path"]}, "", 0))
    ]
    with direct_pipeline() as p:
        sample = p | beam.Create([found])
        projection = Projection(("image",), "image")
        read = p | ListSources(files) | ReadRows(projection, str(tmp_path), sample=sample)
        paths = flat(read.good) | beam.Map(lambda row: row.values["image"])
        assert_that(paths, equal_to(expected))
    staged = [path.stat().st_size for path in (tmp_path / layout.STAGING).rglob("*.images")]
    assert sum(staged) == 10 * len(expected) > 0
