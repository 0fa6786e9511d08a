"""Raw files of a known size: positions, reads at the end, and buffers that are filled in place."""

from __future__ import annotations

import io

import pytest

from recordmill.transforms.storage.stores.store import BoundedFile

DATA = b"0123456789"


class Source(BoundedFile):
    """Bytes in memory, at most four per read."""

    def __init__(self) -> None:
        super().__init__(len(DATA))
        self.filled: list[tuple[object, int, int]] = []

    def fill(self, buffer: memoryview, start: int) -> int:
        self.filled.append((buffer.obj, start, len(buffer)))
        part = DATA[start : start + min(4, len(buffer))]
        buffer[: len(part)] = part
        return len(part)


def test_the_buffer_of_the_caller_is_filled_up_to_the_end() -> None:
    raw, buffer = Source(), bytearray(b"." * 8)
    assert raw.seek(7) == 7
    assert raw.readinto(buffer) == 3
    assert buffer == b"789....."
    assert raw.filled == [(buffer, 7, 3)]
    assert (raw.tell(), raw.readinto(buffer), len(raw.filled)) == (10, 0, 1)


def test_a_read_continues_where_a_shorter_one_ended() -> None:
    raw = Source()
    assert [raw.read(8), raw.read(8), raw.read(8), raw.read(8)] == [b"0123", b"4567", b"89", b""]
    with io.BufferedReader(Source()) as stream:
        assert (stream.read(7), stream.read()) == (b"0123456", b"789")


@pytest.mark.parametrize(
    ("offset", "whence", "place"),
    [
        (3, io.SEEK_SET, 3),
        (-1, io.SEEK_CUR, 4),
        (-3, io.SEEK_CUR, 2),
        (-3, io.SEEK_END, 7),
        (-20, io.SEEK_END, 0),
        (5, io.SEEK_END, 15),
    ],
)
def test_positions_may_be_past_the_end_but_not_before_the_start(
    offset: int, whence: int, place: int
) -> None:
    raw = Source()
    assert (raw.readable(), raw.seekable(), raw.writable()) == (True, True, False)
    raw.seek(5)
    assert raw.seek(offset, whence) == raw.tell() == place
    assert raw.read(2) == DATA[place : place + 2]
