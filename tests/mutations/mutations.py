"""Mutations of files, from random bytes to changes that know the format.

Each takes the content, a random generator and the `Neighbors`, and returns other content.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf


@dataclass(frozen=True)
class Neighbors:
    """Files that can replace a damaged one, or parts of it.

    Attributes:
        siblings: files of the same kind in the same dataset.
        older: the same file of a run with another seed.
        foreign: files of the same kind in another dataset.
    """

    siblings: Sequence[bytes]
    older: Sequence[bytes]
    foreign: Sequence[bytes]


Mutate: TypeAlias = Callable[[bytes, random.Random, Neighbors], bytes]


def _span(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data))
    return start, min(len(data), start + chance.choice((1, 1, 2, 4, 8, 16, 64, 256)))


def flip_bit(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def set_byte(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([chance.choice((0, 10, 13, 32, 48, 127, 255))]) + data[place + 1 :]


def cut_end(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    return data[: chance.choice((0, len(data) - 1, chance.randrange(len(data))))]


def cut_start(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    return data[chance.randrange(1, len(data) + 1) :]


def cut_within(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    start, stop = _span(data, chance)
    return data[:start] + data[stop:]


def insert(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    place = chance.randrange(len(data) + 1)
    more = chance.choice((b"\0", b" ", b"\n", b"\r", chance.randbytes(chance.randrange(1, 40))))
    return data[:place] + more + data[place:]


def append(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    return data + chance.choice((b"\0", b"\n", b" ", b"\0" * 16, data, chance.randbytes(16)))


def repeat_span(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    start, stop = _span(data, chance)
    return data[:stop] + data[start:]


def zero_span(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    start, stop = _span(data, chance)
    return data[:start] + bytes(stop - start) + data[stop:]


def reverse_span(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    start, stop = _span(data, chance)
    return data[:start] + data[start:stop][::-1] + data[stop:]


def swap_spans(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    a, b, c, d = sorted(chance.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def be_sibling(_: bytes, chance: random.Random, near: Neighbors) -> bytes:
    return chance.choice(near.siblings)


def be_older(_: bytes, chance: random.Random, near: Neighbors) -> bytes:
    return chance.choice(near.older)


def be_foreign(_: bytes, chance: random.Random, near: Neighbors) -> bytes:
    return chance.choice(near.foreign)


BLIND: tuple[Mutate, ...] = (
    *(flip_bit, set_byte, cut_end, cut_start, cut_within, insert, append),
    *(repeat_span, zero_span, reverse_span, swap_spans, be_sibling, be_older, be_foreign),
)


# Records: whole ones are moved, or their content is changed and its checksums made right again.


def records_of(data: bytes) -> list[bytes]:
    found, start = [], 0
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        found.append(data[start + 12 : start + 12 + length])
        start += length + 16
    return found


def _masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(records: Sequence[bytes]) -> bytes:
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, _masked(length), record, _masked(record)]
    return b"".join(parts)


def drop_record(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    records = records_of(data)
    del records[chance.randrange(len(records))]
    return framed(records)


def repeat_record(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    records = records_of(data)
    records.insert(chance.randrange(len(records) + 1), chance.choice(records))
    return framed(records)


def reorder_records(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    records = records_of(data)
    chance.shuffle(records)
    return framed(records)


def foreign_record(data: bytes, chance: random.Random, near: Neighbors) -> bytes:
    """Replaces a record by one of another shard, run or dataset, or inserts that."""
    records = records_of(data)
    others = records_of(chance.choice([*near.siblings, *near.older, *near.foreign]))
    place = chance.randrange(len(records))
    records[place : place + chance.randrange(2)] = [chance.choice(others)]
    return framed(records)


def forge_bytes(data: bytes, chance: random.Random, near: Neighbors) -> bytes:
    """Damages the data of a record and recomputes its checksums."""
    records = records_of(data)
    place = chance.randrange(len(records))
    records[place] = chance.choice(BLIND[:11])(records[place], chance, near)
    return framed(records)


def forge_feature(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    """Changes one value of an example, which remains valid."""
    records = records_of(data)
    place = chance.randrange(len(records))
    example = tf.train.Example.FromString(records[place])
    feature = example.features.feature[chance.choice(sorted(example.features.feature))]
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value
    if kind == "bytes_list":
        values[0] = values[0] + b"\0" if chance.random() < 0.5 else values[0][:-1]
    else:
        values[0] = values[0] + chance.choice((-1, 1))
    records[place] = example.SerializeToString(deterministic=True)
    return framed(records)


def move_feature_bytes(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    """Re-encodes an example with its features in another order: the same values, other bytes."""
    records = records_of(data)
    place = chance.randrange(len(records))
    example = tf.train.Example.FromString(records[place])
    names = sorted(example.features.feature, reverse=True)
    body = b""
    for name in names:
        entry = tf.train.Features(feature={name: example.features.feature[name]})
        body += entry.SerializeToString()
    records[place] = b"\x0a" + _varint(len(body)) + body
    return framed(records)


def _varint(number: int) -> bytes:
    parts = b""
    while number > 127:
        parts, number = parts + bytes([number & 127 | 128]), number >> 7
    return parts + bytes([number])


RECORDS: tuple[Mutate, ...] = (
    *(drop_record, repeat_record, reorder_records, foreign_record, forge_bytes),
    *(forge_feature, move_feature_bytes),
)


# Parquet: the index is read, changed and written again, so that it is a valid file.


def _rewritten(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def forge_index_value(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    if not len(table):
        return data
    position = chance.randrange(table.num_columns)
    field = table.schema.field(position)
    values = table.column(position).to_pylist()
    row = chance.randrange(len(values))
    is_text = pa.types.is_string(field.type)
    # A smaller number fits into its type; an unknown one, such as that of a raw image, becomes 1.
    values[row] = f"{values[row]}x" if is_text else abs((values[row] or 0) - 1)
    return _rewritten(table.set_column(position, field, pa.array(values, field.type)))


def reorder_index(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    rows = list(range(len(table)))
    chance.shuffle(rows)
    return _rewritten(table.take(pa.array(rows, pa.int64())))


def drop_index_row(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    if not len(table):
        return data
    gone = chance.randrange(len(table))
    return _rewritten(table.take(pa.array([i for i in range(len(table)) if i != gone], pa.int64())))


INDEXES: tuple[Mutate, ...] = (forge_index_value, reorder_index, drop_index_row)


# Text and JSON: edits after which the file still reads well.


def change_number(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data
    found = chance.choice(numbers)
    other = str(int(found[0]) + chance.choice((-1, 1, 1000)))
    return data[: found.start()] + other.encode() + data[found.end() :]


def change_word(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    words = list(re.finditer(rb"[A-Za-z]{2,}", data))
    if not words:
        return data
    found = chance.choice(words)
    other = found[0].swapcase() if chance.random() < 0.5 else found[0] + b"s"
    return data[: found.start()] + other + data[found.end() :]


def drop_line(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def repeat_line(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines, chance.choice(lines)])


def reorder_lines(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def write_json_again(data: bytes, chance: random.Random, _: Neighbors) -> bytes:
    try:
        return json.dumps(json.loads(data), indent=chance.choice((None, 1, 4))).encode()
    except ValueError:
        return data.replace(b"\n", b"\r\n")


TEXT: tuple[Mutate, ...] = (change_number, change_word, drop_line, repeat_line, write_json_again)
"""Of these, `reorder_lines` is not: in rejects/ the order is none."""


def of_file(name: str) -> tuple[Mutate, ...]:
    """Returns the mutations of a file of a dataset."""
    if ".tfrecord-" in name and not name.endswith(".idx"):
        return (*BLIND, *RECORDS)
    if name.endswith(".parquet"):
        return (*BLIND, *INDEXES)
    if name.startswith(("rejects/", "dropped/")):
        return (*BLIND, *TEXT)
    return (*BLIND, *TEXT, reorder_lines)
