"""ReadRows: every row of every table, or its reject."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import parquet, text_ranges
from recordmill.transforms.functional.sources.text_ranges import align
from recordmill.transforms.inputs.formats import FORMATS, cut_text, scan_text
from recordmill.transforms.read_rows import ListSources, ReadRows, _batched_rows
from tests.beam.direct import as_tuples, direct_pipeline, flat

ALL = Projection()


def test_rows_of_all_formats_are_read_with_their_lines(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("a.csv", "b.tsv", "c.jsonl", "d.parquet")}
    Path(paths["a.csv"]).write_bytes(gzip.compress(b'x,y,z\n1,"two\nlines",u\n\n3\n'))
    Path(paths["b.tsv"]).write_bytes(b"z\ty\n,\t4\n")
    Path(paths["c.jsonl"]).write_bytes(b'{"y": 5, "q": 6}\n\n{"x": null}\n')
    table = pa.table({"x": [7, 8, 9], "y": ["a", "b", None], "unused": [0, 0, 0]})
    pq.write_table(table, paths["d.parquet"], row_group_size=2)
    files = (
        TableFile(paths["a.csv"], "csv", gzipped=True),
        TableFile(paths["b.tsv"], "tsv"),
        TableFile(paths["c.jsonl"], "jsonl"),
        TableFile(paths["d.parquet"], "parquet"),
    )
    with direct_pipeline() as p:
        read = p | ListSources(files) | ReadRows(Projection(("x", "y")))
        expected = [
            Row({"x": "1", "y": "two\nlines"}, paths["a.csv"], 2, is_text=True),
            Row({"x": "3"}, paths["a.csv"], 5, is_text=True),
            Row({"y": "4"}, paths["b.tsv"], 2, is_text=True),
            Row({"y": 5}, paths["c.jsonl"], 1),
            Row({"x": None}, paths["c.jsonl"], 3),
            Row({"x": 7, "y": "a"}, paths["d.parquet"], 1),
            Row({"x": 8, "y": "b"}, paths["d.parquet"], 2),
            Row({"x": 9, "y": None}, paths["d.parquet"], 3),
        ]
        assert_that(flat(read.good), equal_to(expected), label="Rows")
        assert_that(read.rejects, equal_to([]), label="Rejects")


def test_all_columns_are_read_by_default(tmp_path: Path) -> None:
    path = str(tmp_path / "a.csv")
    Path(path).write_bytes(b"x,y\n1,2\n")
    with direct_pipeline() as p:
        read = p | ListSources((TableFile(path, "csv"),)) | ReadRows(Projection())
        assert_that(flat(read.good), equal_to([Row({"x": "1", "y": "2"}, path, 2, is_text=True)]))


def test_rows_that_cannot_be_read_are_rejects(tmp_path: Path) -> None:
    csv, jsonl = str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl.gz")
    Path(csv).write_bytes(b'x\n1\n2,3\n\xff\n"4"4\n5\n')
    whole = gzip.compress(b'{"x": 1}\n{"x": \n')
    Path(jsonl).write_bytes(whole)
    files = (TableFile(csv, "csv"), TableFile(jsonl, "jsonl", gzipped=True))
    with direct_pipeline() as p:
        read = p | ListSources(files) | ReadRows(Projection(("x",)))
        good = [
            Row({"x": "1"}, csv, 2, is_text=True),
            Row({"x": "5"}, csv, 6, is_text=True),
            Row({"x": 1}, jsonl, 1),
        ]
        bad = [
            ("", "", f"{csv}:3", "malformed_row", ""),
            ("", "", f"{csv}:4", "malformed_row", ""),
            ("", "", f"{csv}:5", "malformed_row", ""),
            ("", "", f"{jsonl}:2", "malformed_row", ""),
        ]
        assert_that(flat(read.good), equal_to(good), label="Rows")
        assert_that(as_tuples(read.rejects, "ToTuples"), equal_to(bad), label="Rejects")


def test_a_damaged_row_group_gives_one_reject_per_row(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table({"x": [f"value {i}" * 20 for i in range(6)]})
    pq.write_table(table, path, row_group_size=3, use_dictionary=False)
    column = pq.read_metadata(path).row_group(1).column(0)
    with open(path, "r+b") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * column.total_compressed_size)
    with direct_pipeline() as p:
        read = p | ListSources((TableFile(path, "parquet"),)) | ReadRows(Projection())
        good = [Row({"x": f"value {i}" * 20}, path, i + 1) for i in range(3)]
        bad = [("", "", f"{path}:{line}", "malformed_row", "") for line in (4, 5, 6)]
        assert_that(flat(read.good), equal_to(good), label="Rows")
        assert_that(as_tuples(read.rejects, "ToTuples"), equal_to(bad), label="Rejects")


def test_batches_are_bounded_by_their_number_of_rows_and_their_bytes() -> None:
    small = [Row({"x": "y", "n": 1}, "t.csv", n) for n in range(2500)]
    assert [len(batch) for batch in _batched_rows(small)] == [1024, 1024, 452]
    large = [Row({"x": [b"x" * 2**18, "y" * 2**17]}, "t.csv", n) for n in range(7)]
    other = Reject.of_malformed_row("t.csv", 9, "why"), SkippedInput("x", 2)
    found = list(_batched_rows([*large[:4], *other, *large[4:]]))
    assert found == [large[:3], *other, large[3:6], large[6:]]
    assert list(_batched_rows([])) == []
    mixed = [
        Row({}, "t.tar", n, text) for n, text in enumerate((True, True, False, frozenset("x")))
    ]
    assert list(_batched_rows(mixed)) == [mixed[:2], mixed[2:3], mixed[3:]]


def test_two_readers_share_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1, 2, 3]}), path, row_group_size=2)
    listed: list[str] = []
    parts = parquet.parts

    def counted(stream: BinaryIO, file: TableFile) -> Iterator[Part]:
        listed.append(file.path)
        return parts(stream, file)

    monkeypatch.setattr(parquet, "parts", counted)
    rows = [Row({"x": n}, path, n) for n in (1, 2, 3)]
    with direct_pipeline() as p:
        found = p | ListSources((TableFile(path, "parquet"),))
        for name in ("Once", "Again"):
            read = found | name >> ReadRows(Projection())
            assert_that(flat(read.good, f"{name}Flat"), equal_to(rows), label=f"{name}Rows")
    assert listed == [path]


@pytest.fixture
def small_ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has tables of more bytes read in ranges of them."""
    monkeypatch.setattr(text_ranges, "LARGE_BYTES", request.param)
    monkeypatch.setattr(text_ranges, "RANGE_BYTES", request.param)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("small_ranges", [50], indirect=True)
def test_large_text_tables_are_read_in_ranges(tmp_path: Path) -> None:
    rows = [f'{n},"two\nlines {n}"' if n % 3 else f"{n},one" for n in range(40)]
    rows[7], rows[30] = '7,"x"y', '30,"x\n30,"y"'
    tables = {
        "a.csv": "n,text\n" + "\n".join(rows),
        "b.jsonl": "".join(f'{{"n": {n}}}\n' if n != 20 else "{\n" for n in range(30)),
        "c.csv": "n,text\n" + 'unclosed,"' + "x\n" * 100,
        "d.tsv": "n\n1\n",
    }
    files = tuple(written(tmp_path / name, text) for name, text in tables.items())
    read = (FORMATS[file.format].read(Part(file), ALL) for file in files)
    whole = list(one_by_one(chain.from_iterable(read)))
    with direct_pipeline() as p:
        listed = p | ListSources(files)
        read = listed | ReadRows(ALL)
        starts = listed.parts | beam.Map(lambda part: (part.file.path, part.stop is None))
        counted = starts | beam.combiners.Count.PerElement()
        counts = {"csv": 11, "jsonl": 6, "unclosed": 1, "small": 1}
        expected = [
            ((file.path, name == "small"), count)
            for file, (name, count) in zip(files, counts.items(), strict=True)
        ]
        assert_that(counted, equal_to(expected), label="Splits")
        good, rejects = ([r for r in whole if isinstance(r, kind)] for kind in (Row, Reject))
        assert (len(good), len(rejects)) == (38 + 29 + 1, 2 + 1 + 1)
        assert_that(flat(read.good), equal_to(good), label="Rows")
        assert_that(read.rejects, equal_to(rejects), label="Rejects")


def test_ranges_of_a_table_that_has_changed_are_lost_rows(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "n\n" + "12345\n" * 10)
    first, second = align((part, scan_text(part)) for part in cut_text(file, 40))
    assert (first.stop, second.first) == (44, 9)
    (rows,) = FORMATS["csv"].read(second, ALL)
    assert rows == [Row({"n": "12345"}, file.path, n, is_text=True) for n in (9, 10, 11)]
    for text, detail in (
        ("n\n" + "1234567\n" * 10, "the table has changed since it was listed. Convert it again."),
        (
            "n\n" + "12345\n" * 8,
            "the rest of the table cannot be read: the file has become shorter since it was listed",
        ),
    ):
        Path(file.path).write_text(text)
        (reject,) = FORMATS["csv"].read(second, ALL)
        assert isinstance(reject, Reject)
        assert (reject.source, reject.detail) == (f"{file.path}:9", detail)


def written(path: Path, text: str) -> TableFile:
    path.write_text(text)
    return TableFile(str(path), path.suffix[1:], size=path.stat().st_size)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("small_ranges", [10], indirect=True)
def test_a_table_that_cannot_be_split_is_read_by_one_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1\n" * 10, encoding="utf-16")
    file = TableFile(str(path), "csv", size=path.stat().st_size)
    with direct_pipeline() as p:
        listed = p | ListSources((file,))
        assert_that(listed.parts, equal_to([Part(file)]))
        zipped = TableFile("a.csv.gz", "csv", gzipped=True, size=100)
        parts = (p | "Zipped" >> ListSources((zipped,))).parts
        assert_that(parts, equal_to([Part(zipped)]), label="ZippedParts")
        rows = [Row({"n": "1"}, str(path), n, is_text=True) for n in range(2, 12)]
        assert_that(flat((listed | ReadRows(ALL)).good), equal_to(rows), label="Rows")
    assert [
        record.getMessage() for record in caplog.records if record.name.endswith("read_rows")
    ] == [
        f"{path}: is read by one worker; expected UTF-8 and records of up to 16 MiB. "
        "Check its encoding, and look for a quote that is not closed."
    ]
