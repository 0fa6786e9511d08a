"""The TFRecord format, to the byte, and records of any writer.

Of each record: its length (uint64, little-endian), the masked CRC32C of the length, its data, the
masked CRC32C of the data. Source: TensorFlow's TFRecord tutorial, "TFRecords format details".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill

ROWS = [(0, "cat", 0.5), (1, "dog", -1.25), (2, "", 3.0)]
SCHEMA = """
features:
  number: {kind: int64, from: "column:number"}
  name: {kind: bytes, from: "column:name"}
  score: {kind: float, from: "column:score"}
"""
SPEC = {
    "number": tf.io.FixedLenFeature([], tf.int64),
    "name": tf.io.FixedLenFeature([], tf.string),
    "score": tf.io.FixedLenFeature([], tf.float32),
}


def crc32c(data: bytes) -> int:
    """Returns CRC-32C bit by bit, from its polynomial alone (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """Returns the masked checksum, by the formula of the tutorial."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """Returns the frame of a record."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def serialized(number: int, name: str, score: float) -> bytes:
    """Returns an example built with TensorFlow's classes."""
    feature = {
        "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
        "score": tf.train.Feature(float_list=tf.train.FloatList(value=[score])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def by_writer(path: str, records: list[bytes]) -> None:
    """Writes records as the tutorial does in Python."""
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


def by_tf_data(path: str, records: list[bytes]) -> None:
    """Writes records as the tutorial does with tf.data."""
    dataset = tf.data.Dataset.from_tensor_slices(records)
    tf.data.experimental.TFRecordWriter(path).write(dataset)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """The schema's file."""
    path = tmp_path / "schema.yaml"
    path.write_text(SCHEMA)
    return path


@pytest.fixture
def dataset(schema: Path, tmp_path: Path) -> Path:
    """The rows, converted."""
    table = tmp_path / "t.csv"
    table.write_text("number,name,score\n" + "".join(f"{a},{b},{c}\n" for a, b, c in ROWS))
    return published(table, tmp_path / "out", "--schema", schema)


def test_files_are_records_framed_to_the_byte(dataset: Path) -> None:
    (file,) = readers.shards(dataset, "train")
    order = [int(key.rpartition(":")[2]) - 2 for key in readers.keys(dataset, "train")]
    assert file.read_bytes() == b"".join(framed(serialized(*ROWS[i])) for i in order)


def test_both_of_tensorflows_readers_read_them(dataset: Path) -> None:
    (file,) = readers.shards(dataset, "train")
    by_tf_data = list(tf.data.TFRecordDataset([str(file)]).as_numpy_iterator())
    by_iterator = list(tf.compat.v1.io.tf_record_iterator(str(file)))
    assert by_tf_data == by_iterator
    parsed = [tf.io.parse_single_example(record, SPEC) for record in by_iterator]
    found = {(int(p["number"]), p["name"].numpy().decode(), float(p["score"])) for p in parsed}
    assert found == set(ROWS)


@pytest.mark.parametrize("write", [by_writer, by_tf_data])
def test_files_of_tensorflow_are_read_here(
    write: Callable[[str, list[bytes]], None], schema: Path, tmp_path: Path
) -> None:
    file = tmp_path / "theirs.tfrecord"
    write(str(file), [serialized(*row) for row in ROWS])
    ended = recordmill("verify", file, "--schema", schema)
    assert (ended.code, ended.out) == (0, f"verified: 3 records in {file}, 1 file\n")
    damaged = bytearray(file.read_bytes())
    damaged[len(framed(serialized(*ROWS[0]))) + 20] ^= 1
    file.write_bytes(damaged)
    ended = recordmill("verify", file, "--schema", schema)
    assert ended.code == 3
    assert "record 1 at byte" in ended.err
