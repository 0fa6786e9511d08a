"""Finds records to show, in a published dataset or in any TFRecord files, plain or compressed."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO, cast

from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import (
    HEADER_BYTES,
    FrameError,
    masked_crc32c,
    read_frames,
)
from recordmill.transforms.storage.dataset import Dataset, RecordLocation
from recordmill.transforms.storage.files import exists, files_below, is_local, open_binary
from recordmill.transforms.storage.shard_files import DAMAGED_GZIP

_PATTERNS = ("*tfrecord*", "**/*tfrecord*")
_CHUNK_BYTES = 2**16
_SHOWN_KEYS = 3


@dataclass(frozen=True)
class FoundRecord:
    """One record.

    Attributes:
        file: as given, or as found below a folder.
        number: its number within the file, from 0.
        offset: the byte at which it begins in the uncompressed file.
        data: what it holds.
        features: the same, if it is a `tf.train.Example`.
        key: of the row that it was made from; "" outside of a published dataset.
        split: its split; also.
    """

    file: str
    number: int
    offset: int
    data: bytes
    features: dict[str, list[Any]] | None
    key: str = ""
    split: str = ""


@dataclass(frozen=True)
class Source:
    """Where records are looked for.

    Attributes:
        files: the TFRecord files, in order.
        dataset: the published dataset that they are, if they are one.
    """

    files: tuple[str, ...]
    dataset: Dataset | None = None

    @classmethod
    def of(cls, paths: Sequence[str]) -> Source:
        """Returns the source that some paths name: one published dataset, or files.

        Raises:
            UsageError: if there is nothing.
        """
        if len(paths) != 1 or not _exists(layout.join(paths[0], layout.SUCCESS)):
            return cls(tuple(files_of(paths)))
        dataset = Dataset.open_unchecked(paths[0])
        return cls(tuple(dataset.path(s.file) for s in dataset.shards().values()), dataset)

    def first(self, count: int) -> Iterator[FoundRecord]:
        """Yields the first records of all files; of a dataset, some of each split.

        Raises:
            VerificationFailed: at the first that is damaged.
        """
        if self.dataset is None:
            yield from islice(self._in_files(), count)
            return
        splits = list(self.dataset.splits)
        for i, split in enumerate(splits):
            part = count // len(splits) + (i < count % len(splits))
            yield from islice(_in_split(self.dataset, split), part)

    def numbered(self, number: int) -> FoundRecord:
        """Returns one record by its number, from 0, counted over all files.

        Raises:
            UsageError: if there are fewer records.
        """
        total = 0
        if self.dataset is None:
            for total, record in enumerate(self._in_files(), 1):
                if total > number:
                    return record
        else:
            for shard in self.dataset.shards().values():
                if total + shard.records > number:
                    return _at(self.dataset, self.dataset.location(shard, number - total))
                total += shard.records
        raise UsageError(f"--record {number}: there are {total:,} records, numbered from 0")

    def keyed(self, key: str) -> FoundRecord:
        """Returns the record that was made from the row of this key.

        In files without an index of their records, it is the first that holds the key as a text.

        Raises:
            UsageError: if there is none.
        """
        if self.dataset is None:
            return self._holding(key)
        location = self.dataset.find(key)
        if location is not None:
            return _at(self.dataset, location)
        known = (record.key for record in self.first(_SHOWN_KEYS))
        raise UsageError(
            f"--key {key}: no record of {self.dataset.directory} has it; "
            f"keys are like {', '.join(known)}"
        )

    def _holding(self, key: str) -> FoundRecord:
        sought = key.encode("utf-8", "surrogateescape")
        for record in self._in_files():
            if any([sought] == values for values in (record.features or {}).values()):
                return record
        raise UsageError(
            f"--key {key}: no record holds this text; only a dataset that recordmill has "
            "published has an index of keys"
        )

    def _in_files(self) -> Iterator[FoundRecord]:
        return (record for file in self.files for record in read_records(file))


def _in_split(dataset: Dataset, split: str) -> Iterator[FoundRecord]:
    for shard in dataset.splits[split].shards:
        keys = dataset.index(shard, ["key"])["key"]
        for record, key in zip(read_records(dataset.path(shard.file)), keys, strict=False):
            yield replace(record, key=key.as_py(), split=split)


def _at(dataset: Dataset, location: RecordLocation) -> FoundRecord:
    """Returns the record at a location.

    Raises:
        VerificationFailed: if it is damaged.
    """
    shard = dataset.shard(location.split, location.shard)
    data = dataset.record(shard, location.record, (location.offset, location.length))
    return FoundRecord(
        file=dataset.path(shard.file),
        number=location.record,
        offset=location.offset - HEADER_BYTES,
        data=data,
        features=features_of(data),
        key=location.key,
        split=location.split,
    )


def files_of(paths: Sequence[str]) -> list[str]:
    """Returns the TFRecord files that some paths stand for: files, and folders of them.

    Raises:
        UsageError: if there is no such file, or a folder holds none.
    """
    return [file for path in paths for file in _files_of(path)]


def _exists(path: str) -> bool:
    try:
        return exists(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _files_of(path: str) -> list[str]:
    if not _exists(path):
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
        VerificationFailed: at the first that is damaged, with its number and its first byte.
        UsageError: if the file cannot be opened.
    """
    number = 0
    try:
        with uncompressed(file) as stream:
            for frame in read_frames(stream):
                yield FoundRecord(file, number, frame.offset, frame.data, features_of(frame.data))
                number += 1
    except FrameError as error:
        raise VerificationFailed(_damage(file, error)) from error
    except DAMAGED_GZIP as error:
        if number == 0 and isinstance(error, OSError) and error.errno:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        what = f"the compressed stream is damaged or cut short: {error}"
        raise VerificationFailed(f"{file}: record {number}: {what}; {_before(number)}") from error


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
    """Gives the records and their framing; compression is reported by content, not by name."""
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
