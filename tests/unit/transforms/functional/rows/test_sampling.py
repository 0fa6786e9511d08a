"""Samples of rows: nested, and by the keys of their records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.records import OUTSIDE_SAMPLE, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import TableFile
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.placement import (
    Sampler,
    _position,
    split_position,
)

TABLE = TableFile("/d/t.csv", "csv")
ROWS = [Row({"image": f"{i}.jpg"}, TABLE.path, i + 2, True) for i in range(1_000)]


def sampler(schema: str = "image_classification", **options: Any) -> Sampler:
    settings = ConvertConfig(
        inputs=("/d/t.csv",), output="out", name="d", schema=preset(schema), **options
    )
    return Sampler.of(settings, Binding.of(settings, settings.dataset_schema, (TABLE,)))


def selected(found: Sampler) -> list[Row]:
    return [row for row in ROWS if found.has(row)]


def test_a_percentage_selects_about_its_part_and_a_larger_one_contains_a_smaller() -> None:
    one, ten, everything = (selected(sampler(sample=part)) for part in ("1%", "10%", "100%"))
    assert everything == ROWS
    assert 70 < len(ten) < 130
    assert set(map(id, one)) < set(map(id, ten))
    assert selected(sampler(sample="10%", seed=1)) != ten


def test_a_number_selects_as_many_rows_and_the_percentages_around_it_nest_with_it() -> None:
    every = sampler(sample=100)
    last = sorted(map(every.position, ROWS))[99]
    hundred = selected(replace(every, ends={"": last + 1}))
    assert len(hundred) == 100
    small, large = (set(map(id, selected(sampler(sample=part)))) for part in ("5%", "20%"))
    assert small < set(map(id, hundred)) < large
    assert selected(every) == ROWS  # fewer rows than asked


def test_the_salt_is_not_that_of_splits() -> None:
    assert _position(0, "sample", "a") != split_position("a", 0)
    assert _position(0, "sample", "a") != _position(1, "sample", "a")


def test_the_position_depends_on_the_key_of_the_record_only() -> None:
    found = sampler()
    assert found.position(ROWS[7]._replace(line=99)) == found.position(ROWS[7])
    assert found.position(ROWS[7]) == _position(0, "sample", "7.jpg")


def test_the_frames_of_a_sequence_are_together() -> None:
    found = sampler("image_sequence")
    frames = [Row({"sequence": "s", "image": f"{i}.jpg"}, "/d/t.csv", i + 2) for i in range(9)]
    assert {found.position(frame) for frame in frames} == {_position(0, "sample", "s")}


def test_an_embedded_image_has_the_key_that_it_has_once_it_is_staged() -> None:
    found, row = sampler(), Row({}, "/d/t.parquet", 3)
    staged = row._replace(image=Location("/run/1.images", 0, 5, b"hash"))
    assert found.position(row._replace(image=b"image")) == found.position(staged)


def test_rows_without_a_key_and_rejects_have_the_position_of_their_source() -> None:
    found = sampler()
    reject = Reject.of_malformed_row("/d/t.csv", 9, "why")
    assert found.position(Row({}, "/d/t.csv", 9)) == _position(0, "sample", "/d/t.csv:9")
    assert found.position(reject) == _position(0, "sample", "/d/t.csv:9")


def test_lost_rows_are_in_every_sample_and_the_others_are_counted() -> None:
    none = Sampler(sampler().binding, 0, {"": 0})
    lost, other = Reject.of_lost_rows("/d/t.csv", 4, "why"), SkippedInput("files", 2)
    malformed = Reject.of_malformed_row("/d/t.csv", 9, "why")
    found = list(none.select([ROWS[0], other, lost, malformed, ROWS[1]]))
    assert found == [other, lost, SkippedInput(OUTSIDE_SAMPLE, 3)]
    assert list(sampler().select([ROWS[0]])) == [ROWS[0]]
