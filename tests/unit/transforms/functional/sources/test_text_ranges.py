"""A text table that is read in ranges has the rows and rejects of one that is read at once."""

from __future__ import annotations

import csv
import io
from itertools import accumulate
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import delimited, json_lines, text_ranges
from recordmill.transforms.functional.sources.delimited import DelimitedOptions
from recordmill.transforms.functional.sources.text_ranges import (
    NO_LINES,
    Effect,
    RangeScan,
    _join,
    _scan_lines,
    align,
    cut,
    is_large,
    scan,
)

READERS: dict[str, Any] = {"csv": delimited, "tsv": delimited, "jsonl": json_lines}


def stream(data: bytes) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]


def table(data: bytes, format_: str = "csv") -> TableFile:
    return TableFile(f"t.{format_}", format_, size=len(data))


def splits_of(
    data: bytes, range_bytes: int, format_: str = "csv", block_bytes: int = 2**20
) -> list[Part]:
    """Returns the parts of a table; its ranges are scanned in any order."""
    ranges = list(cut(stream(data), table(data, format_), range_bytes))
    return align((part, scan(stream(data), part, block_bytes)) for part in reversed(ranges))


def read(data: bytes, part: Part) -> list[Row | Reject]:
    reader = READERS[part.file.format]
    return list(one_by_one(reader.read(stream(data[part.start : part.stop]), part, Projection())))


def read_whole(data: bytes, format_: str = "csv") -> list[Row | Reject]:
    return read(data, Part(table(data, format_)))


def read_ranges(
    data: bytes, range_bytes: int, format_: str = "csv", block_bytes: int = 2**20
) -> list[Row | Reject]:
    parts = splits_of(data, range_bytes, format_, block_bytes)
    return [row for part in parts for row in read(data, part)]


PIECES = st.sampled_from(
    [b'"', b'""', b",", b"\t", b"\n", b"\r\n", b"\r", b"a", b" ", b"\0", b"{", b'{"a": 1}\n']
) | st.sampled_from(
    [b'"x"', b'"x\ny"', b"1,2\n", b'"a"b', b'x"y', b"\xff", b"\xc3", b"\xef\xbb\xbf"]
)
DATA = st.builds(
    lambda mark, header, pieces: mark + header + b"".join(pieces),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.sampled_from([b"a,b\n", b'"a\nb",c\r\n', b"a\tb\r", b""]),
    st.lists(PIECES, max_size=40),
).filter(bool)  # an empty file is not cut
FORMATS = st.sampled_from(["csv", "tsv", "jsonl"])


@given(data=DATA, format_=FORMATS, range_bytes=st.integers(1, 60), block_bytes=st.integers(1, 40))
@example(b'a,b\n1,"x\n2,y\n3,z\n', "csv", 3, 100)  # a quote that is never closed
@example(b'a,b\n1,x"y\n2,"x"y,"\n3,z\n', "csv", 3, 100)  # one in a field, and one after another
@example(b'\xef\xbb\xbf"a\nb",c\r\n\xef\xbb\xbf1,2\r\n', "csv", 2, 1)
@example(b'a\n"x\r\n"\r\n\r\n2\r\r3\r\n', "csv", 1, 1)
@settings(max_examples=200)
def test_ranges_of_any_size_give_the_rows_and_rejects_of_one_reader(
    data: bytes, format_: str, range_bytes: int, block_bytes: int
) -> None:
    assert read_ranges(data, range_bytes, format_, block_bytes) == read_whole(data, format_)


@given(data=DATA, range_bytes=st.integers(1, 60), limit=st.integers(1, 12))
@settings(max_examples=100)
def test_fields_over_the_limit_give_the_rejects_of_one_reader(
    data: bytes, range_bytes: int, limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "MAX_FIELD_CHARACTERS", limit)
        patch.setattr(text_ranges, "MAX_RECORD_BYTES", limit)
        assert read_ranges(data, range_bytes, block_bytes=3) == read_whole(data)


def realistic(rows: int) -> bytes:
    """Returns a table with line breaks in quotes, doubled quotes and damaged rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "caption"])
    for number in range(rows):
        caption = f'two\nlines, "{number}"' if number % 10 == 0 else f"a caption, {number}"
        writer.writerow([number, caption])
        if number % 50 == 7:
            text.write(f'{number},"text" after a quote, "and more\r\n')
        if number % 50 == 27:
            text.write(f'{number},15" screen\r\n')
    return text.getvalue().encode()


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_any_number_of_ranges_shares_the_rows(count: int) -> None:
    data = realistic(1000)
    range_bytes = -(-len(data) // count)
    parts = splits_of(data, range_bytes, block_bytes=256)
    assert len(parts) == count
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, len(data))
    for at, part in enumerate(parts):
        assert at * range_bytes <= part.start < (at + 1) * range_bytes
    found = [row for part in parts for row in read(data, part)]
    assert found == read_whole(data)
    assert sum(isinstance(row, Row) for row in found) == 1020
    assert sum(isinstance(row, Reject) for row in found) == 20


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"a\nb,c\n", (2, Effect(False, (9, 0), 9), Effect(True)), id="no quotes"),
        pytest.param(
            b'a\nb",c\nd\n', (3, Effect(False, (9, 0), 9), Effect(False, (16, 2), 16)), id="closes"
        ),
        pytest.param(
            b'a,"b\nc\n', (2, Effect(True, (9, 0), 9), Effect(False, (14, 1), 14)), id="opens"
        ),
        pytest.param(
            b'a,"b"c,"\nd\n',
            (2, Effect(False, (9, 0), 9), Effect(False, (18, 1), 18)),
            id="damaged",
        ),
        pytest.param(
            b'a"\r\rb', (3, Effect(False, (9, 0), 9), Effect(False, (12, 1), 12)), id="CR"
        ),
        pytest.param(b'a""\n', (1, Effect(False, (9, 0), 9), Effect(True)), id="doubled"),
        pytest.param(b'"\r\n', (1, Effect(True, (9, 0), 9), Effect(False)), id="ends both ways"),
    ],
)
def test_scan_of_lines(data: bytes, expected: RangeScan) -> None:
    assert _scan_lines(data, 9, ",") == expected


def test_lines_of_json_have_no_quotes_and_no_carriage_returns() -> None:
    start = Effect(False, (9, 0), 9)
    assert _scan_lines(b'{"a": 1}\r{\n"\n', 9, None) == RangeScan(2, start, start)


@given(st.lists(st.lists(PIECES, max_size=6).map(b"".join), min_size=3, max_size=3))
@settings(max_examples=100)
def test_joined_scans_are_the_scan_of_joined_lines(parts: list[bytes]) -> None:
    lines = [part + b"\n" for part in parts]
    starts = accumulate(map(len, lines), initial=0)
    first, second, third = (
        _scan_lines(data, at, ",") for data, at in zip(lines, starts, strict=False)
    )
    assert _join(_join(first, second), third) == _join(first, _join(second, third))
    assert _join(NO_LINES, first) == _join(first, NO_LINES) == first
    whole, joined = _scan_lines(b"".join(lines), 0, ","), _join(_join(first, second), third)
    assert joined.lines == whole.lines
    for one, other in ((joined.outside, whole.outside), (joined.inside, whole.inside)):
        assert (one.quoted, one.entry) == (other.quoted, other.entry)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param('\ufeffa,b\n1,"x\ny"\n2,z\n'.encode("utf-16-le"), id="UTF-16"),
        pytest.param(b'a,"b"c\n1,2\n3,4\n', id="a damaged header"),
        pytest.param(b"a,b\xff\n1,2\n3,4\n", id="a header in Latin-1"),
        pytest.param(b'a,b\n1,"' + b"x\n" * 20 + b'"\n2,y\n', id="a long record"),
        pytest.param(b'a,b\n1,"' + b"x\n" * 20, id="a quote that is never closed"),
        pytest.param(b"a,b\n" + b"1" * 20 + b"," + b"2" * 20 + b"\n3,4\n", id="a long line"),
    ],
)
def test_what_needs_a_single_reader_stays_whole(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_ranges, "MAX_RECORD_BYTES", 30)
    assert splits_of(data, 5) == [Part(table(data))]


def test_a_line_of_json_may_be_longer_than_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_ranges, "MAX_RECORD_BYTES", 3)
    data = b'{"a": 1}\n{"a": "' + b"x" * 100 + b'"}\n\n{"a": 3}\n'
    parts = splits_of(data, 10, "jsonl", block_bytes=4)
    assert [(part.start, part.first) for part in parts] == [(0, 1), (119, 3), (120, 4)]
    assert read_ranges(data, 10, "jsonl", block_bytes=4) == read_whole(data, "jsonl")


def test_a_range_that_cannot_be_read_leaves_the_file_whole() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("input/output error")

    data = b"a\n1\n2\n"
    first, second = cut(stream(data), table(data), 3)
    assert scan(Broken(data), second) is None
    assert align([(first, scan(stream(data), first)), (second, None)]) == [Part(table(data))]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (TableFile("t.csv", "csv", size=11), True),
        (TableFile("t.csv", "csv", size=10), False),
        (TableFile("t.csv", "csv"), False),
        (TableFile("t.csv.gz", "csv", gzipped=True, size=11), True),
        (TableFile("t.parquet", "parquet", size=11), False),
    ],
)
def test_only_text_tables_over_one_range_are_large(
    file: TableFile, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_ranges, "LARGE_BYTES", 10)
    assert is_large(file) is expected


@pytest.mark.parametrize("delimiter", [";", "|", "]", "^", "\\", "\t"])
def test_ranges_of_a_table_with_any_delimiter_and_no_header(delimiter: str) -> None:
    lines = ["1{0}x", '"a{0}""\n"{0}y', 'a"b{0}"{0}"', "{0}", '"z"{0}"\r\n"'] * 5
    data = "\n".join(lines).format(delimiter).encode()
    options = DelimitedOptions(delimiter, ("a", "b"))
    file = TableFile("t.csv", "csv", size=len(data), options=options)
    whole = read(data, Part(file))
    assert len([row for row in whole if isinstance(row, Row)]) == 25
    for range_bytes in range(1, len(data)):
        ranges = list(cut(stream(data), file, range_bytes))
        parts = align((part, scan(stream(data), part)) for part in ranges)
        assert [row for part in parts for row in read(data, part)] == whole
