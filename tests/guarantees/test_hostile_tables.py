"""Hostile tables and schemas: each ends quickly, in bounded memory, with a clear message."""

from __future__ import annotations

import io
import json
import re
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.schemas.yaml_files import parse_schema
from recordmill.transforms.functional.records.framing import _masked_crc32c
from recordmill.transforms.functional.rows.batches import RowBatch, one_by_one
from recordmill.transforms.functional.sources import arrow, delimited, json_lines, parquet, tfrecord

CSV, JSONL, PARQUET = (TableFile(f"t.{name}", name) for name in ("csv", "jsonl", "parquet"))
LIMIT = 2**20


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limit of a line to 1 MiB, so that tests do not need 64 MiB."""
    monkeypatch.setattr(delimited, "MAX_LINE", LIMIT)
    monkeypatch.setattr(delimited.bounded_lines, "__defaults__", (1, LIMIT))


class Endless(io.RawIOBase):
    """A stream of a head, a body repeated thousands of times, and a tail, in constant memory."""

    def __init__(self, head: bytes, body: bytes, times: int, tail: bytes) -> None:
        self._parts = iter([head, *([body] * times), tail])
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._left:
            self._left = next(self._parts, None) or b""
            if not self._left:
                return 0
        size = min(len(view), len(self._left))
        view[:size], self._left = self._left[:size], self._left[size:]
        return size


def stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


def endless(head: bytes, body: bytes, times: int, tail: bytes) -> io.BufferedReader:
    return io.BufferedReader(Endless(head, body, times, tail))


def outcomes(found: Iterator[RowBatch | Row | Reject]) -> list[tuple[int, str]]:
    """Returns (line, image or reason) of each row."""
    return [
        (row.line, row.values["image"])
        if isinstance(row, Row)
        else (int(row.source.rpartition(":")[2]), f"{row.reason.value}: {row.detail}")
        for row in one_by_one(found)
    ]


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("quote", [b"", b'"'])
def test_a_cell_beyond_the_limit_is_one_reject_in_bounded_memory(quote: bytes) -> None:
    head = b"image,label\na.jpg,cat\n" + quote
    table = endless(head, b"x" * 2**20, 64, quote + b",dog\nb.jpg,cat\n")
    tracemalloc.start()
    found = outcomes(delimited.read(table, Part(CSV), Projection()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    why = f"malformed_row: the line is longer than {LIMIT:,} bytes. Check for a missing line break."
    assert found == [(2, "a.jpg"), (3, why), (4, "b.jpg")]
    assert peak < 32 * 2**20


@pytest.mark.usefixtures("short_lines")
def test_a_json_line_beyond_the_limit_is_one_reject_in_bounded_memory() -> None:
    head = b'{"image": "a.jpg"}\n{"image": "'
    table = endless(head, b"x" * 2**20, 64, b'"}\n{"image": "b.jpg"}\n')
    tracemalloc.start()
    found = outcomes(json_lines.read(table, Part(JSONL), Projection()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    why = f"malformed_row: the line is longer than {LIMIT:,} bytes. Check for a missing line break."
    assert found == [(1, "a.jpg"), (2, why), (3, "b.jpg")]
    assert peak < 32 * 2**20


@pytest.mark.parametrize("breaks", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_lines_of_the_maximum_length_are_read(
    breaks: bytes, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_LINE", 32)
    name = b"x" * (32 - len(breaks) + extra)
    data = breaks.join([b"image", name, b"b", name, b"c"])
    found = outcomes(delimited.read(stream(data), Part(CSV), Projection()))
    assert [line for line, _ in found] == [2, 3, 4, 5]
    assert found[1] == (3, "b")
    assert found[3] == (5, "c")
    if extra < 1:
        assert found[0] == (2, name.decode())


def test_many_columns_take_linear_time() -> None:
    names = [f"c{i}" for i in range(200_000)]
    header = ",".join(["image", *names]).encode() + b"\n"
    began = time.perf_counter()
    found = delimited.probe(stream(header + b"a.jpg\n"), CSV)
    (row,) = one_by_one(
        delimited.read(stream(header + b"a.jpg\n"), Part(CSV), Projection(("image",)))
    )
    assert (len(found.columns), row.values) == (200_001, {"image": "a.jpg"})
    (row,) = one_by_one(delimited.read(stream(header + b"a.jpg\n"), Part(CSV), Projection()))
    assert row.values == {"image": "a.jpg"}
    with pytest.raises(UsageError, match="column 'c7' occurs twice"):
        delimited.probe(stream(header.strip() + b",c7\n"), CSV)
    document = json.dumps({"image": "a.jpg", **dict.fromkeys(names, 1)}).encode()
    (row,) = json_lines.read(stream(document), Part(JSONL), Projection(("image",)))
    assert row.values == {"image": "a.jpg"}
    (reject,) = json_lines.read(stream(document[:-1] + b', "c7": 1}'), Part(JSONL), Projection())
    assert reject.detail == "not a JSON object: the name 'c7' occurs twice"
    assert time.perf_counter() - began < 120  # each held to all others, it would be hours


def test_zero_bytes_are_rejected_at_the_head_and_a_value_below_it() -> None:
    with pytest.raises(UsageError, match="got binary data"):
        delimited.probe(stream(b"image,label\na\0.jpg,cat\n"), CSV)
    with pytest.raises(UsageError, match="got binary data"):
        json_lines.probe(stream(b'{"image": "a\0.jpg"}\n'), JSONL)
    late = b"image,label\n" + b"a.jpg,cat\n" * 1000 + b"b\0.jpg,dog\nc.jpg,cat\n"
    found = outcomes(delimited.read(stream(late), Part(CSV), Projection()))
    assert len(found) == 1002
    assert found[-1] == (1003, "c.jpg")
    found = outcomes(json_lines.read(stream(b'{"image": "a\\u0000"}\n'), Part(JSONL), Projection()))
    assert found == [(1, "a\0")]  # a file of that name cannot be: read_error


@pytest.mark.parametrize("depth", [64, 500, 1_000_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deeply_nested_json_is_one_reject(opening: bytes, depth: int) -> None:
    closing = b"]" if opening == b"[" else b"}"
    data = b'{"image":' + opening * depth + b"1" + closing * depth + b"}\n" + b'{"image": "b"}\n'
    found = outcomes(json_lines.read(stream(data), Part(JSONL), Projection()))
    assert found[0][1].startswith(
        "malformed_row: not a JSON object: nested too deeply: more than 64"
    )
    assert found[1:] == [(2, "b")]


def test_a_number_of_a_million_digits_is_one_reject() -> None:
    (reject,) = json_lines.read(stream(b'{"n": ' + b"9" * 10**6 + b"}"), Part(JSONL), Projection())
    assert reject.detail.startswith("not a JSON object: Exceeds the limit")


def lying_parquet(path: Path, lies: dict[bytes, bytes]) -> io.BufferedReader:
    """Returns a table of 3 rows in one row group, with bytes of its footer replaced."""
    pq.write_table(pa.table({"image": ["a", "b", "c"]}), path, compression="none")
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8]
    for told_as, lie in lies.items():
        assert footer.count(told_as) >= 1, footer
        footer = footer.replace(told_as, lie)
    return stream(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


ROWS_OF_FILE, ROWS_OF_GROUP = b"\x16\x06\x19", b"\x16\x06"
"""Thrift's compact form of num_rows, 3 as a zigzag varint, before the field that comes next."""


def test_a_footer_that_contradicts_itself_is_rejected(tmp_path: Path) -> None:
    table = lying_parquet(tmp_path / "t.parquet", {ROWS_OF_FILE: b"\x16\x08\x19"})
    with pytest.raises(UsageError, match="4 rows, but its row groups have 3"):
        parquet.probe(table, PARQUET)


def test_a_footer_that_claims_too_many_rows_is_rejected_quickly(tmp_path: Path) -> None:
    many = b"\x16\x80\x80\x80\x80\x80\x80\x80\x80\x10"  # 2**59
    table = lying_parquet(tmp_path / "t.parquet", {ROWS_OF_GROUP: many})
    try:
        parquet.probe(table, PARQUET)
        found = list(parquet.read(table, Part(PARQUET, 0), Projection()))
    except (UsageError, OSError, pa.ArrowException) as error:
        told_at_once = str(error)
        assert_is_message(told_at_once)
        return
    assert len(found) <= 4
    assert isinstance(found[-1], Reject)
    assert found[-1].reason is Reason.LOST_ROWS
    assert "too many to report one by one" in found[-1].detail


def peak_of(rows: Iterator[object]) -> int:
    """Returns the peak memory of Arrow and Python while rows are read."""
    before, most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    for _ in rows:
        most = max(most, pa.total_allocated_bytes() - before)
    most += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.parametrize(
    "projection", [Projection(), Projection(("image",), "image", pixels=True)], ids=str
)
@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
def test_a_large_dictionary_value_is_not_copied_for_each_row(
    type_: pa.DataType, projection: Projection, tmp_path: Path
) -> None:
    values, count = pa.array([b"x" * LIMIT], pa.binary()).cast(type_), 512
    column = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), values)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"image": column}), path, store_schema=False)  # read as plain values
    with path.open("rb") as file:
        assert peak_of(parquet.read(file, Part(PARQUET, 0), projection)) < 96 * LIMIT
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema([("image", column.type)])) as writer:
        writer.write_table(pa.table({"image": column}))
    source = Part(TableFile(str(tmp_path / "t.arrow"), "arrow"))
    with Path(source.file.path).open("rb") as file:
        assert peak_of(arrow.read(file, source, projection)) < 96 * LIMIT


def test_a_record_that_claims_two_gib_takes_memory_for_its_actual_size() -> None:
    length = (2**31 - 1).to_bytes(8, "little")
    header = length + _masked_crc32c(length).to_bytes(4, "little")
    found = tfrecord.read(stream(header + b"x"), Part(TableFile("t", "tfrecord")), Projection())
    assert peak_of(found) < 64 * LIMIT


def assert_is_message(text: str) -> None:
    assert 0 < len(text) < 2_000


LAUGHS = "\n".join(
    ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "its aliases expand to more than 100,000 values"),
        (f"features: {{image: {{{LAUGHS.replace(chr(10), ', ')}}}}}", "more than 100,000 values"),
        ("features: &a {image: *a}", "an alias is part of the value that it refers to"),
        ("a: " + "[" * 100_000, "nested too deeply"),
        ("[" * 2**21, "has 2,097,152 characters"),
        ("features: 2021-13-45", "month must be in 1..12"),
        ("? [a, b]\n: c", "not a YAML file"),
        ("!!python/object/apply:os.system ['touch /tmp/owned']", "not a YAML file"),
        ("x: " + "y" * 100_000, "unknown key 'x'"),
    ],
    ids=["laughs", "inside", "circle", "deep", "large", "date", "key", "python", "long"],
)
def test_a_hostile_schema_is_rejected_quickly_with_a_short_message(text: str, problem: str) -> None:
    began = time.perf_counter()
    with pytest.raises(UsageError) as raised:
        parse_schema(text, "s.yaml")
    assert problem in str(raised.value)
    assert str(raised.value).startswith("s.yaml")
    assert len(str(raised.value)) < 2_000
    assert time.perf_counter() - began < 10


CLASSES = "{kind: int64, classes: true, from: 'column:c'}"


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (f'"\\ud800": {CLASSES}', "'\\ud800' is not a valid str"),
        (f'a: {CLASSES}\nname: "\\ud800"', "s.yaml:3:7: "),
        (f"{'n' * 300}: {CLASSES}", "too long; expected at most 255 bytes, got 311"),
        (f"a/b: {CLASSES}\n  a.b: {CLASSES}", "'a/b' and 'a.b' have the same file. Rename one."),
        ("a: {kind: float, from: key, default: 1.0e+39}", "the default 1e+39 is not a valid float"),
        (f"a: {{kind: float, from: key, default: {'9' * 99}}}", "is not a valid float"),
        (f"a: {{kind: float, from: key, default: .nan}}\n  {'9' * 99}a: {CLASSES}", ""),
    ],
    ids=["surrogate", "name", "long", "one file", "float32", "integer", "fine"],
)
def test_a_schema_that_no_dataset_can_have_is_rejected(features: str, problem: str) -> None:
    text = f"features:\n  {features}\n"
    if not problem:
        assert parse_schema(text, "s.yaml").features
        return
    with pytest.raises(UsageError, match=re.escape(problem)):
        parse_schema(text, "s.yaml")


def test_a_schema_in_no_known_encoding_is_rejected() -> None:
    text = "features:\n  é: {kind: bytes, from: key}\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert list(parse_schema(text.encode(encoding), "s.yaml").features) == ["é"]
    with pytest.raises(UsageError, match=r"^s\.yaml: not a YAML file: "):
        parse_schema(text.encode("latin-1"), "s.yaml")


def test_aliases_of_an_honest_size_are_allowed() -> None:
    image, a = "{kind: bytes, from: 'image:bytes'}", "&a {kind: int64, from: 'column:n'}"
    text = f"features:\n  image: {image}\n  a: {a}\n  b: *a\n"
    assert list(parse_schema(text, "s.yaml").features) == ["image", "a", "b"]
