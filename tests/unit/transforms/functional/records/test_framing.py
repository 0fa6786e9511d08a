"""Tests of TFRecord framing, against files written by TensorFlow."""

from __future__ import annotations

import io

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.functional.records.framing import (
    Frame,
    FrameError,
    _masked_crc32c,
    read_frames,
    read_frames_or_errors,
)

RECORDS = [b"first", b"", b"a third one\0\xff", b"x"]


def crc32c(data):
    """Computes CRC-32C bit by bit from its polynomial (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return tensorflow_file(RECORDS, tmp_path_factory.mktemp("framing"))


def tensorflow_file(records, folder):
    path = str(folder / "records.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with open(path, "rb") as stream:
        return stream.read()


def frames_of(records):
    offset, frames = 0, []
    for i, record in enumerate(records):
        frames.append(Frame(i, offset, record))
        offset += 8 + 4 + len(record) + 4
    return frames


def read(data):
    """Returns the frames before the first damage, and the location of the damage."""
    frames, broken = [], None
    try:
        for frame in read_frames(io.BytesIO(data)):
            frames.append(frame)
    except FrameError as error:
        broken = error
    assert broken is None or str(broken), "a message for a person"
    return frames, broken and (broken.record, broken.offset)


def test_the_checksum_is_the_masked_one_of_tensorflow(small):
    crc = crc32c(b"first")
    assert crc32c(b"123456789") == 0xE3069283  # the check value that every definition gives
    assert _masked_crc32c(b"first") == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    assert _masked_crc32c(b"first").to_bytes(4, "little") == small[17:21]


def test_files_written_by_tensorflow_are_read(small):
    assert read(small) == (frames_of(RECORDS), None)


@given(st.lists(st.binary(max_size=400), max_size=5))
@settings(max_examples=40)
def test_any_records_written_by_tensorflow_are_read(tmp_path_factory, records):
    data = tensorflow_file(records, tmp_path_factory.mktemp("framing"))
    assert read(data) == (frames_of(records), None)


def test_a_file_without_records_is_valid():
    assert read(b"") == ([], None)


def record_at(position):
    """Returns the number of the frame that contains a byte of the small file."""
    return next(f for f in reversed(frames_of(RECORDS)) if f.offset <= position)


def test_every_flipped_bit_is_detected_and_located(small):
    for position in range(len(small)):
        for bit in range(8):
            damaged = bytearray(small)
            damaged[position] ^= 1 << bit
            broken = record_at(position)
            whole = frames_of(RECORDS)[: broken.record]
            assert read(bytes(damaged)) == (whole, (broken.record, broken.offset)), (position, bit)


def test_truncation_within_a_record_is_detected_and_located(small):
    ends = {frame.offset: frame.record for frame in frames_of(RECORDS)}
    for length in range(len(small)):
        if length in ends:  # the records before are whole: only a count reveals it
            expected = (frames_of(RECORDS)[: ends[length]], None)
        else:
            broken = record_at(length)
            expected = (frames_of(RECORDS)[: broken.record], (broken.record, broken.offset))
        assert read(small[:length]) == expected, length


def test_bytes_after_the_last_record_are_detected(small):
    assert read(small + b"\0") == (frames_of(RECORDS), (len(RECORDS), len(small)))
    assert read(small + b"\0" * 16) == (frames_of(RECORDS), (len(RECORDS), len(small)))


def test_lengths_over_the_limit_of_tensorflow_are_damage_despite_a_valid_checksum():
    class Unreadable(io.BytesIO):
        def read(self, size=-1):
            assert size <= 12
            return super().read(size)

    length = (2**40).to_bytes(8, "little")
    header = length + _masked_crc32c(length).to_bytes(4, "little")
    with pytest.raises(FrameError) as raised:
        list(read_frames(Unreadable(header + b"data")))
    assert (raised.value.record, raised.value.offset) == (0, 0)


@pytest.mark.parametrize("buffered", [1, 5, 12, 16, 20, 21, 1000])
def test_records_are_cut_however_they_are_buffered(small, buffered):
    stream = io.BufferedReader(io.BytesIO(small), buffered)
    assert list(read_frames(stream)) == frames_of(RECORDS)


def test_records_after_damaged_data_are_read(small):
    third = frames_of(RECORDS)[2].offset
    damaged = small[: third + 12] + b"A" + small[third + 13 :]
    first, second, error, last = read_frames_or_errors(io.BytesIO(damaged))
    assert (error.record, error.offset, error.ends) == (2, third, False)
    assert [first, second, last] == [frames_of(RECORDS)[i] for i in (0, 1, 3)]


def test_records_before_an_error_of_the_stream_are_read(small):
    class Damaged(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(30) if not self.tell() else self.read()

        def read(self, size=-1):
            raise EOFError

    found = read_frames(Damaged(small))
    assert next(found) == frames_of(RECORDS)[0]
    with pytest.raises(EOFError):
        next(found)


def test_a_wrong_length_reads_in_chunks():
    class Counting(io.BytesIO):
        def read(self, size=-1):
            assert size <= 16 * 2**20
            return super().read(size)

    length = (2**31 - 1).to_bytes(8, "little")
    header = length + _masked_crc32c(length).to_bytes(4, "little")
    [error] = read_frames_or_errors(Counting(header + b"data"))
    assert (str(error), error.ends) == ("the file ends within the record of 2147483647 bytes", True)
