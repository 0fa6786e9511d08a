"""A file that is truncated or damaged anywhere gives all rows or an error."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipelines.commands.schema import _infer_schema
from recordmill.schemas.errors import UsageError
from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.records.framing import _masked_crc32c
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import UNREADABLE_SOURCE

ROWS = 12
PROJECTION = Projection(("image", "label"), "image", pixels=True)
TABLE = pa.table(
    {"image": [f"{i}.jpg" for i in range(ROWS)], "label": [i % 3 for i in range(ROWS)]}
)


def csv_bytes() -> bytes:
    """Returns a table with quoted fields, so that most truncations are within quotes."""
    lines = ['"image","label"', *(f'"{i}.jpg","c{i % 3}"' for i in range(ROWS))]
    return "".join(f"{line}\n" for line in lines).encode()


def jsonl_bytes() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in TABLE.to_pylist())


def tar_bytes() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(ROWS):
            for name, data in ((f"{i}.jpg", b"\xff\xd8" * 9), (f"{i}.cls", b"%d" % i)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def tfrecord_bytes() -> bytes:
    framed = []
    for i in range(ROWS):
        example = Example()
        example.features.feature["image"].bytes_list.value.append(b"%02d.jpg" % i)
        data, length = example.SerializeToString(), struct.pack("<Q", example.ByteSize())
        crcs = (struct.pack("<I", _masked_crc32c(part)) for part in (length, data))
        framed.append(length + next(crcs) + data + next(crcs))
    return b"".join(framed)


def coco_bytes() -> bytes:
    images = [{"id": i, "file_name": f"{i}.jpg", "height": 5, "width": 5} for i in range(ROWS)]
    return json.dumps({"images": images, "annotations": [], "categories": []}).encode()


def arrow_bytes(new: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> bytes:
    stream = io.BytesIO()
    with new(stream, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=4)
    return stream.getvalue()


def parquet_bytes() -> bytes:
    stream = io.BytesIO()
    pq.write_table(TABLE, stream, row_group_size=4)
    return stream.getvalue()


PLAIN = {
    "t.csv": ("csv", csv_bytes()),
    "t.jsonl": ("jsonl", jsonl_bytes()),
    "t.tar": ("tar", tar_bytes()),
    "t.tfrecord": ("tfrecord", tfrecord_bytes()),
    "t.json": ("coco", coco_bytes()),
    "t.parquet": ("parquet", parquet_bytes()),
    "file.arrow": ("arrow", arrow_bytes(pa.ipc.new_file)),
    "stream.arrow": ("arrow", arrow_bytes(pa.ipc.new_stream)),
}
ZIPPED = {
    f"{name}.gz": (format_, gzip.compress(data, mtime=0))
    for name, (format_, data) in PLAIN.items()
    if format_ not in ("parquet", "arrow")
}
FILES = PLAIN | ZIPPED

ALL_ROWS, LOST, REJECTED = "all rows", "lost rows", "rejected"


def outcome(path: Path, data: bytes) -> str | int:
    """Returns the outcome of a file: the numbers of rows and rejects, unless all rows are read."""
    path.write_bytes(data)
    name = FILES[path.name][0]
    file = TableFile(str(path), name, path.suffix == ".gz")
    try:
        FORMATS[name].probe(file)
        parts = [part for part in FORMATS[name].parts(file) if isinstance(part, Part)]
        read = (FORMATS[name].read(part, PROJECTION) for part in parts)
        found = list(one_by_one(chain.from_iterable(read)))
    except (UsageError, *UNREADABLE_SOURCE):
        return REJECTED
    if any(isinstance(row, Reject) and row.reason is Reason.LOST_ROWS for row in found):
        return LOST
    rows = sum(not isinstance(row, SkippedInput) for row in found)
    return ALL_ROWS if rows == ROWS else rows


@pytest.mark.parametrize("name", FILES)
def test_intact_files_give_all_rows(name: str, tmp_path: Path) -> None:
    assert outcome(tmp_path / name, FILES[name][1]) == ALL_ROWS


def boundaries(name: str) -> set[int]:
    """Returns the offsets where truncation leaves an intact file with fewer rows."""
    data = FILES[name][1]
    if name == "t.csv":  # wherever it is not within quotes
        return {at for at in range(len(data)) if not data[:at].count(b'"') % 2}
    if name == "t.jsonl":  # around a line break
        return {at for at in range(len(data)) if b"\n" in data[at - 1 : at + 1]}
    return set(range(0, len(data), len(data) // ROWS)) if name == "t.tfrecord" else set()


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_truncated_file_gives_all_rows_or_lost_rows(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = FILES[name][1]
    cut = data.draw(st.integers(1, len(whole) - 1).filter(lambda at: at not in boundaries(name)))
    path = tmp_path_factory.getbasetemp() / name
    assert outcome(path, whole[:cut]) in (ALL_ROWS, LOST, REJECTED)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("t.csv", "t.json")])
@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_byte_gives_all_rows_or_lost_rows(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(FILES[name][1])
    at, flip = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    whole[at] ^= flip
    path = tmp_path_factory.getbasetemp() / name
    found = outcome(path, bytes(whole))
    if name == "t.jsonl" and whole[at] == ord("\n"):  # two malformed lines, where there was one
        assert found in (ROWS + 1, LOST, REJECTED)
    else:
        assert found in (ALL_ROWS, LOST, REJECTED)


@pytest.mark.parametrize("name", ZIPPED)
@pytest.mark.parametrize("tail", [b"garbage", b"\x1f", gzip.compress(b"x", mtime=0)[:-1]])
def test_bytes_after_a_gzip_member_are_not_ignored(name: str, tail: bytes, tmp_path: Path) -> None:
    assert outcome(tmp_path / name, FILES[name][1] + tail) in (LOST, REJECTED)


def test_joined_gzip_members_and_padding_are_read_on(tmp_path: Path) -> None:
    lines = FILES["t.jsonl"][1].splitlines(keepends=True)
    members = gzip.compress(b"".join(lines[:5])) + gzip.compress(b"".join(lines[5:])) + bytes(9)
    assert outcome(tmp_path / "t.jsonl.gz", members) == ALL_ROWS


def test_no_schema_is_inferred_from_a_truncated_table(tmp_path: Path) -> None:
    path = tmp_path / "t.tfrecord"
    path.write_bytes(FILES["t.tfrecord"][1][:-1])
    with pytest.raises(UsageError, match=rf"^--infer: rows of the input are lost:\n  {path}:12: "):
        _infer_schema(str(path), {})


def test_data_after_the_end_of_an_arrow_stream_is_reported(tmp_path: Path) -> None:
    data = FILES["stream.arrow"][1]
    assert outcome(tmp_path / "stream.arrow", data + data) == LOST


def test_an_arrow_footer_with_too_few_batches_is_reported(tmp_path: Path) -> None:
    data = bytearray(FILES["file.arrow"][1])
    found = set()
    for at in range(data.rindex(b"\xff\xff\xff\xff\0\0\0\0"), len(data) - 10):
        if data[at : at + 4] == (3).to_bytes(4, "little"):  # where the footer counts its batches
            fewer = bytes(data[:at]) + (2).to_bytes(4, "little") + bytes(data[at + 4 :])
            found.add(outcome(tmp_path / "file.arrow", fewer))
    assert LOST in found
    assert found <= {LOST, REJECTED, ALL_ROWS}
