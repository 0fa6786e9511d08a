"""Seekable files over range requests of a few megabytes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import BinaryIO

import pytest

from recordmill.transforms.storage.stores.store import Span, Store, TaggedBytes

DATA = bytes(range(256)) * 40_000  # 10 MB
REQUEST = 8 * 2**20


class Answers(Store):
    """A store that answers requests of ranges of one file by a function."""

    def __init__(self, answer: Callable[[int, int], bytes]) -> None:
        self._answer = answer

    def read(self, path: str, span: Span | None = None, limit: int = sys.maxsize) -> TaggedBytes:
        return self._answer(*(span or (0, len(DATA)))), None

    def size(self, path: str) -> int:
        return len(DATA)


def opened(answer: Callable[[int, int], bytes]) -> BinaryIO:
    return Answers(answer).open("s3://birds/1.bin")


@pytest.fixture
def asked() -> list[tuple[int, int]]:
    """The requested ranges."""
    return []


@pytest.fixture
def stream(asked: list[tuple[int, int]]) -> io.BufferedReader:
    def read(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return DATA[start:stop]

    return opened(read)  # type: ignore[return-value]


def test_reading_everything_returns_the_data(stream: io.BufferedReader) -> None:
    assert stream.read() == DATA
    assert stream.read(1) == b""


def test_small_reads_share_a_request(
    stream: io.BufferedReader, asked: list[tuple[int, int]]
) -> None:
    assert [stream.read(3), stream.read(5)] == [DATA[:3], DATA[3:8]]
    assert asked == [(0, REQUEST)]


def test_text_is_decoded_from_few_requests(
    stream: io.BufferedReader, asked: list[tuple[int, int]]
) -> None:
    assert stream.read1() == DATA[: io.DEFAULT_BUFFER_SIZE]
    text = io.TextIOWrapper(stream, encoding="latin-1", newline="")
    assert len(text.readline()) == 11
    assert sum(len(line) for line in text) == len(DATA) - io.DEFAULT_BUFFER_SIZE - 11
    assert asked == [(0, REQUEST), (REQUEST, len(DATA))]


@pytest.mark.parametrize(
    ("offset", "whence", "place"),
    [
        (100, io.SEEK_SET, 100),
        (-100, io.SEEK_END, len(DATA) - 100),
        (-1_000, io.SEEK_END, len(DATA) - 1_000),
    ],
)
def test_reads_after_a_seek_end_at_the_end(
    stream: io.BufferedReader,
    asked: list[tuple[int, int]],
    offset: int,
    whence: int,
    place: int,
) -> None:
    assert stream.seek(offset, whence) == stream.tell() == place
    assert stream.read(10) == DATA[place : place + 10]
    assert asked == [(place, min(place + REQUEST, len(DATA)))]


def test_reads_past_the_end_are_empty(
    stream: io.BufferedReader, asked: list[tuple[int, int]]
) -> None:
    stream.seek(5, io.SEEK_END)
    assert stream.read(10) == b""
    assert all(stop <= len(DATA) for _, stop in asked)


@pytest.mark.parametrize("lost", [1, 100, len(DATA) - REQUEST], ids=str)
def test_a_short_answer_is_not_the_end_of_the_file(lost: int) -> None:
    whole = opened(lambda start, stop: DATA[start:stop][: stop - start - lost])
    with pytest.raises(EOFError, match="has become shorter"):
        whole.read()
    kept = DATA[: len(DATA) - lost]
    buffered = opened(lambda start, stop: kept[start:stop])
    with pytest.raises(EOFError, match="has become shorter"):
        list(iter(lambda: buffered.read(REQUEST), b""))
