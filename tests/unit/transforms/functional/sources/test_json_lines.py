"""Tests of JSONL tables: each line is a row or a reject."""

from __future__ import annotations

import gzip
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason
from recordmill.schemas.tables import Probe, Projection, TableFile
from recordmill.transforms.functional.sources import delimited
from recordmill.transforms.functional.sources.json_lines import _read_rows, parse_object, probe


def read(data, columns=None):
    """Returns all rows as (line, values), all rejects as their line, and lost rows as "LINE-"."""
    projection = None if columns is None else Projection(columns)
    return [plain(o) for o in _read_rows(io.BytesIO(data), "t.jsonl", projection)]


def plain(outcome):
    if isinstance(outcome, Row):
        assert (outcome.file, outcome.is_text) == ("t.jsonl", False)
        return outcome.line, outcome.values
    assert (outcome.key, outcome.uri, outcome.split) == ("", "", "")
    assert outcome.reason in (Reason.MALFORMED_ROW, Reason.LOST_ROWS)
    assert outcome.detail
    file, _, line = outcome.source.partition(":")
    assert file == "t.jsonl"
    return int(line) if outcome.reason is Reason.MALFORMED_ROW else f"{line}-"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b'{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})], id="plain"),
        pytest.param(b'{"a": 1}\n{"a": 2}', [(1, {"a": 1}), (2, {"a": 2})], id="no last break"),
        pytest.param(b'{"a": 1}\r\n{"a": 2}\r\n', [(1, {"a": 1}), (2, {"a": 2})], id="CRLF"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}\n', [(1, {"a": 1})], id="BOM"),
        pytest.param(b'\n \t\n{"a": 1}\n\n', [(3, {"a": 1})], id="blank lines"),
        pytest.param(b"{}\n", [(1, {})], id="an empty object is a row"),
        pytest.param(
            b'{"i": 0, "f": 0.5, "t": "", "n": null, "b": false, "l": [1, "x"]}\n',
            [(1, {"i": 0, "f": 0.5, "t": "", "n": None, "b": False, "l": [1, "x"]})],
            id="every type",
        ),
        pytest.param(
            b'{"a": 9223372036854775808123}\n', [(1, {"a": 9223372036854775808123})], id="big int"
        ),
        pytest.param(b'{"a": "\\ud83d\\ude00"}\n', [(1, {"a": "😀"})], id="an escaped pair"),
        pytest.param(
            b'{"a": "\\ud83d"}\n', [(1, {"a": "\ud83d"})], id="a lone surrogate: binding rejects it"
        ),
        pytest.param('{"ä": "x\u2028y"}\n'.encode(), [(1, {"ä": "x\u2028y"})], id="U+2028"),
        pytest.param(b'{"a": 1}\n{"a": \n{"a": 3}\n', [(1, {"a": 1}), 2, (3, {"a": 3})], id="cut"),
        pytest.param(b'{"a": "\xff"}\n{"a": 2}\n', [1, (2, {"a": 2})], id="no UTF-8"),
        pytest.param(b'{"a": "x\0y"}\n', [1], id="NUL unescaped"),
        pytest.param(b'{"a": "x\\u0000y"}\n', [(1, {"a": "x\0y"})], id="NUL escaped"),
        pytest.param(b'{"a": 1, "a": 2}\n', [1], id="a name twice"),
        pytest.param(b'{"a": {"b": 1, "b": 1}}\n', [1], id="a name twice, deeper"),
        pytest.param(b'[1]\n"x"\n7\nnull\n{"a": 1}\n', [1, 2, 3, 4, (5, {"a": 1})], id="no object"),
        pytest.param(b'{"a": 1} {"a": 2}\n', [1, 1], id="two objects in a line"),
        pytest.param(b'{"a": 1}\x8a{"a": 2}\n', [1, 1], id="a damaged line break"),
        pytest.param(b'{"a": 1}{{"a": 2}\n', ["1-"], id="two objects, the second damaged"),
        pytest.param(b"{}" * 1001 + b"\n{}\n", ["1-", (2, {})], id="objects without number"),
        pytest.param(b'{"a": 1} {\n', ["1-"], id="a second object that is cut"),
        pytest.param(b'{"a": 1} "b": {"c": 1}}\n', [1], id="an object within a damaged one"),
        pytest.param(b'{"a": 1} x\n', [1], id="text after the object"),
        pytest.param(b'{"a": 1}\n{"a": "x', [(1, {"a": 1}), "2-"], id="cut within a text"),
        pytest.param(b'{"a": 1}\n{"a": {"b": 1}', [(1, {"a": 1}), "2-"], id="cut after a brace"),
        pytest.param(b'{"a": 1}\n{"a": "\xc3', [(1, {"a": 1}), "2-"], id="cut in a character"),
        pytest.param(b'{"a": 1}\nno object', [(1, {"a": 1}), 2], id="no object at the end"),
        pytest.param(b"{'a': 1}\n", [1], id="single quotes"),
        pytest.param(b'{"a": ' + b"[" * 100_000 + b"\n{}\n", [1, (2, {})], id="nested too deeply"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}\n{}\n", [1, (2, {})], id="too many digits"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_rows(data, expected):
    assert read(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"b": 1}\n[1]\n{"a": {"c": 2}}\n', Probe(("a", "a.c", "b"), has_rows=True)),
        (b"{}\n", Probe((), has_rows=True)),
        (b"", Probe((), has_rows=False)),
        (b"\n \n", Probe((), has_rows=False)),
    ],
)
def test_the_names_in_the_first_rows_are_columns(data, expected):
    assert probe(io.BufferedReader(io.BytesIO(data)), TableFile("t.jsonl", "jsonl")) == expected


def test_a_table_without_objects_is_rejected():
    with pytest.raises(UsageError, match=r"^t\.jsonl: expected a JSON object per line, got none"):
        probe(io.BufferedReader(io.BytesIO(b"[1]\n")), TableFile("t.jsonl", "jsonl"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (None, {"a": 1, "b": None}),
        (("b", "c"), {"b": None}),
        ((), {}),
    ],
    ids=str,
)
def test_only_projected_columns_are_kept(columns, expected):
    assert read(b'{"a": 1, "b": null}\n', columns) == [(1, expected)]


def test_the_duplicate_name_is_reported():
    with pytest.raises(ValueError, match=r"^the name 'a' occurs twice$"):
        parse_object(b'{"a": 1, "b": 2, "a": 3}')


@pytest.mark.parametrize("text", [rb'{"a": 1, "\ud800": 2}', rb'{"a": {"b": [1, {"\uD800": 2}]}}'])
def test_a_name_with_a_lone_surrogate_is_rejected(text):
    with pytest.raises(ValueError, match=r"^the name '\\ud800' contains a lone surrogate$"):
        parse_object(text)


def test_a_name_with_a_pair_of_surrogates_is_a_name():
    assert parse_object(rb'{"a": {"\ud83d\ude00": 1}}') == {"a": {"😀": 1}}


def test_a_value_that_is_not_an_object_is_named():
    with pytest.raises(ValueError, match=r"^expected an object \{…\}, got list$"):
        parse_object(b"[]")


def test_numbers_beyond_the_range_of_floats_are_rejected():
    (outcome,) = read(b'{"a": 1e400}\n')
    assert isinstance(outcome, int) or not math.isinf(outcome[1]["a"])


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.lists(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), VALUE), max_size=5),
    st.booleans(),
)
@settings(max_examples=60)
def test_values_written_by_json_are_read_exactly(rows, ascii_only):
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    data = "".join(f"{line}\n" for line in lines).encode()
    assert read(data) == list(enumerate(rows, start=1))


@given(st.binary(max_size=200))
def test_every_line_that_is_not_blank_is_a_row_or_a_reject(data):
    expected = [i for i, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    assert [
        int(o[:-1]) if isinstance(o, str) else o if isinstance(o, int) else o[0] for o in read(data)
    ] == expected


ROWS = [(line, {"n": line, "x": f"{line * 7919 % 104729:x}"}) for line in range(1, 3001)]
GZIPPED = gzip.compress(b"".join(json.dumps(v).encode() + b"\n" for _, v in ROWS), mtime=0)


def read_gzipped(data):
    unzipped = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data)))
    return [plain(o) for o in _read_rows(unzipped, "t.jsonl", None)]


def test_complete_gzip_streams():
    assert read_gzipped(GZIPPED) == ROWS


@pytest.mark.parametrize("cut", [4, 9, len(GZIPPED) // 2, len(GZIPPED) // 4])
def test_a_truncated_gzip_stream_gives_its_rows_and_then_lost_rows(cut):
    *rows, last = read_gzipped(GZIPPED[:-cut])
    assert rows == ROWS[: len(rows)]
    assert last == f"{len(rows) + 1}-"  # the line after the last that was read


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


@given(
    st.lists(
        st.sampled_from(['{"a": 1}\n', "\n", "\n" * 9, " \t\r\n" * 7, '{"a"\n', "  ", "é\n"]),
        max_size=9,
    ).map("".join),
    st.sampled_from([1, 3]),
    st.integers(1, 9),
)
def test_blank_lines_are_skipped_in_blocks_of_any_size(text, run, buffer):
    def found():
        stream = io.BufferedReader(io.BytesIO(text.encode()), buffer)
        return list(_read_rows(stream, "t.jsonl", None))

    expected = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited.batches, "BATCH_ROWS", run)
        assert found() == expected


def test_a_table_of_blank_lines_is_read_in_blocks():
    text = b'{"a": 1}\n' + b"\n" * 3_000_000 + b'{"a": 2}\n'
    lines = list(delimited.bounded_lines(io.BufferedReader(io.BytesIO(text)), first=1))
    assert lines[-1] == (3_000_002, b'{"a": 2}\n')
    assert len(lines) < 2_000
