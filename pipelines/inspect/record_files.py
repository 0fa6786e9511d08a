"""Reads any TFRecord files, plain or compressed, and says where one is damaged."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from recordmill.schemas import layout
from recordmill.schemas.errors import ProofError, UsageError
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import (
    HEADER_BYTES,
    FrameError,
    masked_crc32c,
    read_frames,
)
from recordmill.transforms.storage.files import exists, files_below, is_local, open_binary
from recordmill.transforms.storage.shard_files import DAMAGED_GZIP

_PATTERNS = ("*tfrecord*", "**/*tfrecord*")
_CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class FoundRecord:
    """One record.

    Attributes:
        file: as given, or as found below a folder.
        number: its number within the file, from 0.
        offset: the byte at which it begins in the uncompressed file.
        data: what it holds.
        features: the same, if it is a `tf.train.Example`.
        key: the row that it was made from; "" if nothing tells.
        split: its split, likewise.
    """

    file: str
    number: int
    offset: int
    data: bytes
    features: dict[str, list[Any]] | None
    key: str = ""
    split: str = ""


def files_of(paths: Sequence[str]) -> list[str]:
    """Returns the TFRecord files that some paths stand for: files, and folders of them.

    Raises:
        UsageError: if there is no such file, or a folder holds none.
    """
    return [file for path in paths for file in _files_of(path)]


def is_there(path: str) -> bool:
    """Returns whether there is a file or folder at a path.

    Raises:
        UsageError: if that cannot be found out.
    """
    try:
        return exists(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _files_of(path: str) -> list[str]:
    if not is_there(path):
        raise UsageError(f"{path}: no such file or folder; expected TFRecord files, or a dataset")
    below = _below(path)
    if below is None:
        return [path]
    if not below:
        raise UsageError(
            f"{path}: holds no file named *tfrecord*; name the files, or a dataset: "
            "DIR/NAME/VERSION"
        )
    return [layout.join(path, name) for name in below]


def _below(path: str) -> list[str] | None:
    """Returns the TFRecord files below a folder; None if the path is no folder."""
    if is_local(path) and not _is_folder(path):
        return None
    found = {name for pattern in _PATTERNS for name in files_below(path, pattern)}
    if not is_local(path) and not found:
        return None
    return sorted(name for name in found if not name.startswith((".", "beam-temp-")))


def _is_folder(path: str) -> bool:
    try:
        with open_binary(path):
            return False
    except IsADirectoryError:
        return True
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_records(file: str) -> Iterator[FoundRecord]:
    """Yields the records of a file.

    Raises:
        ProofError: at the first that is damaged, with its number and its place.
        UsageError: if the file cannot be opened.
    """
    number = 0
    try:
        with uncompressed(file) as stream:
            for frame in read_frames(stream):
                yield FoundRecord(file, number, frame.offset, frame.data, features_of(frame.data))
                number += 1
    except FrameError as error:
        raise ProofError(_damage(file, error)) from error
    except DAMAGED_GZIP as error:
        if number == 0 and isinstance(error, OSError) and error.errno:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        what = f"the compressed stream is damaged or cut short: {error}"
        raise ProofError(f"{file}: record {number}: {what}; {_before(number)}") from error


def _damage(file: str, error: FrameError) -> str:
    place = f"{file}: record {error.record} at byte {error.offset}: {error}"
    if error.record == 0 and error.offset == 0:
        return f"{place}; it is damaged, or no TFRecord file"
    return f"{place}; {_before(error.record)}"


def _before(number: int) -> str:
    return f"the {number:,} before it {'is' if number == 1 else 'are'} whole"


def features_of(data: bytes) -> dict[str, list[Any]] | None:
    """Returns what an example holds; None if the bytes are no example."""
    try:
        return read_features(data)
    except ValueError:
        return None


@contextmanager
def uncompressed(file: str) -> Iterator[BinaryIO]:
    """Gives the records and their framing; compression is told by content, not by name."""
    with open_binary(file) as stream:
        head = stream.read(HEADER_BYTES)
        stream.seek(0)
        if head[:2] == b"\x1f\x8b":
            yield cast("BinaryIO", gzip.GzipFile(fileobj=stream))
        elif _is_zlib(head):
            yield cast("BinaryIO", io.BufferedReader(_Inflating(stream)))
        else:
            yield stream


def _is_zlib(head: bytes) -> bool:
    """Whether bytes begin a zlib stream, and no record: TFRecord's other compression."""
    if len(head) < HEADER_BYTES or head[0] & 15 != 8 or int.from_bytes(head[:2], "big") % 31:
        return False
    return bool(struct.unpack("<I", head[8:])[0] != masked_crc32c(head[:8]))


class _Inflating(io.RawIOBase):
    """A zlib stream, inflated as it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._stream.read(_CHUNK_BYTES)
            if not packed:
                raise EOFError("the file ends within the zlib stream")
            data = self._inflate.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)
