"""Tests of CSV and TSV tables: each row has its line, or is rejected."""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import delimited
from recordmill.transforms.functional.sources.delimited import (
    MAX_FIELD_CHARACTERS,
    BoundedLines,
    DelimitedOptions,
    probe,
)


def buffered(data):
    return io.BufferedReader(io.BytesIO(data))


def read_rows(
    stream: io.BufferedReader,
    delimiter: str,
    columns: tuple[str, ...] | None,
    header: tuple[str, ...] | None = None,
) -> Iterator[Any]:
    options = DelimitedOptions(delimiter, header or ())
    return delimited.read(
        stream, Part(TableFile("t.csv", "csv", options=options)), Projection(columns)
    )


def read(data, delimiter=",", columns=None):
    """Returns all rows as (line, values), all rejects as their line, and lost rows as "LINE-"."""
    return [plain(o) for o in one_by_one(read_rows(buffered(data), delimiter, columns))]


def plain(outcome):
    if isinstance(outcome, Row):
        assert (outcome.file, outcome.is_text) == ("t.csv", True)
        return outcome.line, outcome.values
    assert (outcome.key, outcome.uri, outcome.split) == ("", "", "")
    assert outcome.reason in (Reason.MALFORMED_ROW, Reason.LOST_ROWS)
    assert outcome.detail
    file, _, line = outcome.source.partition(":")
    assert file == "t.csv"
    return int(line) if outcome.reason is Reason.MALFORMED_ROW else f"{line}-"


ROW_1, ROW_2 = {"a": "1", "b": "x"}, {"a": "2", "b": "y"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"a,b\n1,x\n2,y\n", [(2, ROW_1), (3, ROW_2)], id="plain"),
        pytest.param(b"a,b\n1,x\n2,y", [(2, ROW_1), (3, ROW_2)], id="no line break at the end"),
        pytest.param(b"a,b\r\n1,x\r\n2,y\r\n", [(2, ROW_1), (3, ROW_2)], id="CRLF"),
        pytest.param(b"a,b\r1,x\r2,y\r", [(2, ROW_1), (3, ROW_2)], id="CR alone"),
        pytest.param(b"\xef\xbb\xbfa,b\n1,x\n2,y\n", [(2, ROW_1), (3, ROW_2)], id="BOM"),
        pytest.param(b"a,b\n\n1,x\n\n\n2,y\n\n", [(3, ROW_1), (6, ROW_2)], id="blank lines"),
        pytest.param(b'"a","b"\n"1","x"\n', [(2, ROW_1)], id="everything quoted"),
        pytest.param(b'a,b\n1,"x,y"\n', [(2, {"a": "1", "b": "x,y"})], id="delimiter in quotes"),
        pytest.param(b'a,b\n1,"x""y"\n', [(2, {"a": "1", "b": 'x"y'})], id="quote in quotes"),
        pytest.param(
            b'a,b\n1,"x\ny\n"\n2,y\n',
            [(2, {"a": "1", "b": "x\ny\n"}), (5, ROW_2)],
            id="line breaks in quotes count as lines",
        ),
        pytest.param(
            b'a,b\r\n1,"x\r\ny"\r\n2,y\r\n',
            [(2, {"a": "1", "b": "x\r\ny"}), (4, ROW_2)],
            id="CRLF in quotes stays CRLF",
        ),
        pytest.param(b'a,b\n1,x"y\n', [(2, {"a": "1", "b": 'x"y'})], id="quote amid a bare field"),
        pytest.param(b"a,b\n 1 , x\n", [(2, {"a": " 1 ", "b": " x"})], id="white space stays"),
        pytest.param(b"a,b\n,\n", [(2, {"a": "", "b": ""})], id="empty fields are values"),
        pytest.param(b'a\n""\n', [(2, {"a": ""})], id="a quoted empty field is no blank line"),
        pytest.param(b"a,b\n1\n", [(2, {"a": "1"})], id="a missing trailing field is absent"),
        pytest.param(b"a,b\n1,x,\n2,y\n", [2, (3, ROW_2)], id="too many fields"),
        pytest.param(b"a,b\n1,x,z,w\n", [2], id="far too many fields"),
        pytest.param(b'a,b\n1,"x"y\n2,y\n', [2, (3, ROW_2)], id="text after a closing quote"),
        pytest.param(b'a,b\n1,x\n2,"y\n3,z\n', [(2, ROW_1), "3-"], id="a quote is not closed"),
        pytest.param(b'a,b\n1,"x', ["2-"], id="cut within quotes"),
        pytest.param(
            b'a,b\n1,"x\n3,"z"\n2,y\n', ["2-", (4, ROW_2)], id="a quote closed by another's"
        ),
        pytest.param(b'a,b\n"1,x\n3,y\n4,"\n2,y\n', ["2-", (5, ROW_2)], id="rows within one field"),
        pytest.param(
            b'a,b\n1,"x\n3,y",z\n2,y\n', ["2-", (4, ROW_2)], id="too many fields over two lines"
        ),
        pytest.param(b"a,b\n1,\xff\n2,y\n", [2, (3, ROW_2)], id="bytes that are no UTF-8"),
        pytest.param(b"a,b\n1,caf\xe9\n2,y\n", [2, (3, ROW_2)], id="Latin-1"),
        pytest.param(b"a,b\n1,\xed\xa0\x80\n2,y\n", [2, (3, ROW_2)], id="an encoded surrogate"),
        pytest.param(b"a,b\n1,\xc3", [2], id="a character cut off at the end"),
        pytest.param("a,b\n1,é🐈\n".encode(), [(2, {"a": "1", "b": "é🐈"})], id="UTF-8"),
        pytest.param("a,b\n1,x\u2028y\n".encode(), [(2, {"a": "1", "b": "x\u2028y"})], id="U+2028"),
        pytest.param(b"a,b\n", [], id="a header alone"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_rows(data, expected):
    assert read(data) == expected


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_byte_order_mark(codec):
    mark = "" if codec == "utf-16" else "\ufeff"
    text = f"{mark}a,b\r\n1,é🐈\r\n2,y\r\n"
    assert read(text.encode(codec)) == [(2, {"a": "1", "b": "é🐈"}), (3, ROW_2)]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(
            "\ufeffa,b\n1,x\n2,y\n".encode("utf-16-le") + b"z", id="an odd byte at the end"
        ),
        pytest.param(
            "\ufeffa,b\n1,x\n2,".encode("utf-16-le") + b"\x00\xd8" + "\n".encode("utf-16-le"),
            id="a lone surrogate",
        ),
    ],
)
def test_damaged_utf_16_rejects_rows_and_never_ends_the_run(damaged):
    found = read(damaged)
    assert [o for o in found if isinstance(o, str)], "what is damaged must be reported"
    assert [o for o in found if not isinstance(o, str)] in (
        [],
        [(2, ROW_1)],
        [(2, ROW_1), (3, ROW_2)],
    )


def test_nul_spoils_its_own_row_at_most():
    found = read(b"a,b\n1,x\0y\n2,y\n")
    # Python's csv module takes it for text since 3.11; before, it rejects the row.
    first = (2, {"a": "1", "b": "x\0y"}) if sys.version_info >= (3, 11) else 2
    assert found == [first, (3, ROW_2)]


def test_bytes_that_are_no_utf_8_in_a_column_that_is_not_read_spoil_nothing():
    assert read(b"a,b\n1,\xff\n", columns=("a",)) == [(2, {"a": "1"})]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (None, {"a": "1", "b": "2", "c": "3"}),
        (("c", "a"), {"a": "1", "c": "3"}),
        (("b", "elsewhere"), {"b": "2"}),
        ((), {}),
    ],
    ids=str,
)
def test_only_projected_columns_are_kept(columns, expected):
    assert read(b"a,b,c\n1,2,3\n", columns=columns) == [(2, expected)]


def test_tsv_knows_no_commas():
    assert read(b"a\tb\n1,5\tx\n", "\t") == [(2, {"a": "1,5", "b": "x"})]


def test_a_field_beyond_the_limit_spoils_only_its_row():
    long = b"x" * (MAX_FIELD_CHARACTERS + 1)
    assert read(b"a,b\n1,x\n2," + long + b"\n2,y\n") == [(2, ROW_1), 3, (4, ROW_2)]


def test_a_field_at_the_limit_is_read():
    long = "x" * MAX_FIELD_CHARACTERS
    assert read(f"a\n{long}\n".encode()) == [(2, {"a": long})]


def test_a_message_states_the_remedy():
    outcomes = list(read_rows(buffered(b'a\n1,2\n"x"y\n'), ",", None))
    assert [o.detail for o in outcomes] == [
        "2 fields, expected 1 as in the header. Quote fields that contain the delimiter.",
        "',' expected after '\"'. Double the quotes within a field.",
    ]


FIELD = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=12
) | st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "\t", "", " ", "a\nb", '"\r'])


@given(
    rows=st.lists(st.lists(FIELD, min_size=3, max_size=3), max_size=6),
    delimiter=st.sampled_from([",", "\t"]),
    dialect=st.sampled_from(
        [("\r\n", csv.QUOTE_MINIMAL), ("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL)]
    ),
    head=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
@settings(max_examples=100)
def test_what_csv_writes_comes_back_exactly_with_its_line(rows, delimiter, dialect, head):
    terminator, quoting = dialect
    text, expected = io.StringIO(newline=""), []
    writer = csv.writer(text, delimiter=delimiter, lineterminator=terminator, quoting=quoting)
    writer.writerow(["a", "b", "c"])
    for fields in rows:
        line = 1 + len(re.findall(r"\r\n|\r|\n", text.getvalue()))
        expected.append((line, dict(zip("abc", fields, strict=True))))
        writer.writerow(fields)
    assert read(head + text.getvalue().encode(), delimiter) == expected


PIECES = st.sampled_from(
    [
        *("1,2\n", "1,2\r\n", "1,2\r", "3,\n", ",\n", "\n", "1\n", "1,2,3\n", "1,2"),
        *('"a",b\n', '"a\nb",c\n', 'a"b,c\n', "\0,x\n", "é,\udcff\n", "long long long,x\n"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from([1, 3, 1024]), st.booleans())
@settings(max_examples=200)
def test_lines_that_are_split_together_give_the_rows_of_the_csv_module(text, ahead, is_known):
    data = f"a,b\n{text}".encode("utf-8", "surrogateescape")
    header = ("a", "b") if is_known else None

    def found():
        rows = read_rows(buffered(data), ",", None, header)
        return [plain(o) for o in one_by_one(rows)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited.batches, "BATCH_ROWS", ahead)
        patch.setattr(delimited, "MAX_LINE", 12)  # a line longer than that fails
        split = found()
        patch.setattr(BoundedLines, "take_plain", lambda *_: [])
        assert split == found()


BREAKS = st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 9)).map(
    lambda run: run[0] * run[1]
)


@given(
    st.lists(PIECES | BREAKS, max_size=12).map("".join),
    st.sampled_from([1, 3, 1024]),
    st.sampled_from([1, 2, 5, 2**20]),
)
@settings(max_examples=200)
def test_blank_lines_are_skipped_in_blocks_of_any_size(text, ahead, block):
    data = f"a,b\n{text}".encode("utf-8", "surrogateescape")

    def found():
        return [plain(o) for o in one_by_one(read_rows(buffered(data), ",", None))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited.batches, "BATCH_ROWS", ahead)
        patch.setattr(delimited, "_BLOCK_CHARACTERS", block)
        patch.setattr(delimited, "MAX_LINE", 12)
        skipped = found()
        patch.setattr(BoundedLines, "skip_blank", lambda _: None)
        assert skipped == found()


def test_a_table_of_blank_lines_is_read_in_blocks(monkeypatch):
    text = "a,b\r\n" + "\r\n" * 3_000_000 + "1,x\r\n" + "\n" * 3_000_000
    read_lines, read_ahead = [], BoundedLines._read_ahead

    def counted(lines):
        found = read_ahead(lines)
        read_lines.append(len(lines._ahead))
        return found

    monkeypatch.setattr(BoundedLines, "_read_ahead", counted)
    data = gzip.decompress(gzip.compress(text.encode()))
    assert read(data) == [(3_000_002, {"a": "1", "b": "x"})]
    assert probe(buffered(data), TableFile("t.csv", "csv")).has_rows
    assert sum(read_lines) < 10_000


def test_only_lines_without_quotes_are_split_together(monkeypatch):
    taken, take = [], BoundedLines.take_plain

    def recorded(lines, *settings):
        fields = take(lines, *settings)
        taken.append(len(fields) // 2)
        return fields

    monkeypatch.setattr(BoundedLines, "take_plain", recorded)
    rows = [f"{n},x{n}\r\n" for n in range(2600)]
    rows[1030] = '1030,"x"\r\n'
    data = "".join(["n,x\r\n", *rows]).encode()
    expected = [(n + 2, {"n": str(n), "x": "x" if n == 1030 else f"x{n}"}) for n in range(2600)]
    assert read(data) == expected
    # The first block has lost its header; the one with a quote has 1,024 rows, read one by one.
    assert taken == [1023, 0, 553, 0]


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_no_bytes_whatever_raise(data):
    for outcome in one_by_one(read_rows(buffered(b"a,b\n" + data), ",", None)):
        plain(outcome)


GZIPPED_ROWS = [
    (line, {"n": str(line), "x": f"{line * 7919 % 104729:x}"}) for line in range(2, 3002)
]
GZIPPED = gzip.compress(
    b"n,x\n" + b"".join(f"{v['n']},{v['x']}\n".encode() for _, v in GZIPPED_ROWS), mtime=0
)


def read_gzipped(data):
    unzipped = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data)))
    return [plain(o) for o in one_by_one(read_rows(unzipped, ",", None))]


def test_complete_gzip_streams():
    assert read_gzipped(GZIPPED) == GZIPPED_ROWS


@pytest.mark.parametrize("cut", [4, 9, len(GZIPPED) // 2, len(GZIPPED) // 4])
def test_a_truncated_gzip_stream_gives_its_rows_and_then_lost_rows(cut):
    *rows, last = read_gzipped(GZIPPED[:-cut])
    assert rows == GZIPPED_ROWS[: len(rows)]
    assert last == f"{len(rows) + 2}-"  # the line after the last that was read


@pytest.mark.parametrize(
    ("at", "bit"),
    [(len(GZIPPED) // 2, 3), (len(GZIPPED) // 3, 0), (20, 5), (-5, 1), (-1, 7)],
    ids=lambda v: str(v),
)
def test_a_damaged_gzip_stream_ends_in_lost_rows(at, bit):
    damaged = bytearray(GZIPPED)
    damaged[at] ^= 1 << bit
    outcomes = read_gzipped(bytes(damaged))
    assert isinstance(outcomes[-1], str)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"a,b\n1,2\n", ["a", "b"], id="plain"),
        pytest.param(b"\xef\xbb\xbfa,b\r\n", ["a", "b"], id="BOM"),
        pytest.param(b'\xef\xbb\xbf"a","b"\r\n', ["a", "b"], id="BOM before a quote"),
        pytest.param(b'"a\nb",c\n', ["a\nb", "c"], id="a line break in a name"),
        pytest.param(b"a,,b,\n", ["a", "", "b", ""], id="without a name"),
        pytest.param("größe,🐈\n".encode(), ["größe", "🐈"], id="UTF-8"),
        pytest.param("\ufeffa,é\n".encode("utf-16-be"), ["a", "é"], id="UTF-16"),
    ],
)
def test_header(data, expected):
    assert probe(buffered(data), TableFile("t.csv", "csv")).columns == tuple(expected)


@pytest.mark.parametrize(
    "data",
    [b"a,b\xff\n", b"a,b\0\n", b'"a"b\n', b'"a,b\n1,2\n', b"\xff\xfea", b"\x89PNG\r\n\x1a\n\0\0"],
    ids=repr,
)
def test_a_header_that_is_no_text_is_rejected(data):
    with pytest.raises((ValueError, UsageError), match=r"\S"):
        probe(buffered(data), TableFile("t.csv", "csv"))


@pytest.mark.parametrize(
    ("delimiter", "header", "data", "expected"),
    [
        (";", (), b"a;b\n1;x\n", [(2, ROW_1)]),
        ("|", ("a", "b"), b"1|x\n2|y\n", [(1, ROW_1), (2, ROW_2)]),
        ("", ("a", "b"), b"\xef\xbb\xbf1,x\n\n2,y\n", [(1, ROW_1), (3, ROW_2)]),
        ("", ("a", "b"), b"1,x,?\n", [1]),
        ("\t", ("a", "b"), b"", []),
    ],
)
def test_delimiter_and_columns_of_a_table_can_be_stated(delimiter, header, data, expected):
    file = TableFile("t.csv", "csv", options=DelimitedOptions(delimiter, header))
    found = probe(buffered(data), file)
    assert found.columns == ("a", "b")
    assert found.has_rows == bool(expected)
    rows = one_by_one(delimited.read(buffered(data), Part(file), Projection()))
    assert [plain(row) for row in rows] == expected
