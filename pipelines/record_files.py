"""Reads records to show from a published dataset, or from any TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional.records.compression import decompressed
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import (
    FrameError,
    frame_start,
    read_frames,
)
from recordmill.transforms.storage.dataset import Dataset, RecordLocation
from recordmill.transforms.storage.files import exists, files_below, is_local, open_binary
from recordmill.transforms.storage.published import newest_version

_PATTERNS = ("*tfrecord*", "**/*tfrecord*")
_SHOWN_KEYS = 3


# Suffixes of tables, which `inspect` is sometimes tried on.
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


@dataclass(frozen=True)
class FoundRecord:
    """A record with its location."""

    file: str
    number: int  # the index of the record within the file, from 0
    offset: int  # the first byte of the record in the uncompressed file
    data: bytes
    # The parsed features; None if the record is not a `tf.train.Example`.
    features: dict[str, list[Any]] | None
    key: str = ""  # the key of the record; "" outside of a published dataset
    split: str = ""  # the split of the record; "" outside of a published dataset


@dataclass(frozen=True)
class RecordSource:
    """The files to read records from."""

    files: tuple[str, ...]  # the TFRecord files, in order
    dataset: Dataset | None = None  # the published dataset that the files belong to, if any

    @classmethod
    def of(cls, paths: Sequence[str]) -> RecordSource:
        """Returns the source for paths: one published dataset, or any files and folders.

        Raises UsageError if there is no TFRecord file.
        """
        folder = paths[0]
        if len(paths) == 1 and not _exists(layout.join(folder, layout.SUCCESS)):
            folder = newest_version(folder)
        if len(paths) != 1 or not _exists(layout.join(folder, layout.SUCCESS)):
            return cls(tuple(_find_record_files(paths)))
        dataset = Dataset.open_unchecked(folder)
        return cls(tuple(dataset.path(s.file) for s in dataset.shards().values()), dataset)

    def first(self, count: int) -> Iterator[FoundRecord]:
        """Yields the first records of all files; of a dataset, the first of each split.

        Raises VerificationFailed: at the first damaged record.
        """
        if self.dataset is None:
            yield from islice(self._in_files(), count)
            return
        splits = list(self.dataset.manifest.ordered_splits)
        # An equal number per split; the first splits get the remainder.
        for i, split in enumerate(splits):
            part = count // len(splits) + (i < count % len(splits))
            yield from islice(_in_split(self.dataset, split), part)

    def by_number(self, number: int) -> FoundRecord:
        """Returns a record by its number, from 0, counted over all files.

        Raises UsageError if there are fewer records.
        """
        total = 0
        # Only a manifest has the number of records per file; other files are read from the start.
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

    def by_key(self, key: str) -> FoundRecord:
        """Returns the record with a key.

        In files without an index of keys, this is the first record with the key as a value. Raises
        UsageError if there is no such record.
        """
        if self.dataset is None:
            return self._by_value(key)
        location = self.dataset.find(key)
        if location is not None:
            return _at(self.dataset, location)
        known = (record.key for record in self.first(_SHOWN_KEYS))
        raise UsageError(
            f"--key {key}: {self.dataset.directory} has no record with this key; "
            f"its first keys are {', '.join(known)}"
        )

    def _by_value(self, key: str) -> FoundRecord:
        sought = key.encode("utf-8", "surrogateescape")  # flags can be invalid UTF-8
        for record in self._in_files():
            if any([sought] == values for values in (record.features or {}).values()):
                return record
        raise UsageError(
            f"--key {key}: no record has this value in a feature; "
            "only datasets published by recordmill have an index of keys"
        )

    def _in_files(self) -> Iterator[FoundRecord]:
        return (record for file in self.files for record in _read_records(file))


def _in_split(dataset: Dataset, split: str) -> Iterator[FoundRecord]:
    for shard in dataset.splits[split].shards:
        keys = dataset.index(shard, ["key"])["key"]
        # Not strict: a shard with a missing or extra record is shown as far as possible.
        for record, key in zip(_read_records(dataset.path(shard.file)), keys, strict=False):
            yield replace(record, key=key.as_py(), split=split)


def _at(dataset: Dataset, location: RecordLocation) -> FoundRecord:
    """Returns the record at a location.

    Raises VerificationFailed if it is damaged.
    """
    shard = dataset.shard(location.split, location.shard)
    data = dataset.record(shard, location.record, (location.offset, location.length))
    return FoundRecord(
        file=dataset.path(shard.file),
        number=location.record,
        offset=frame_start(location.offset),  # the index has the offset of the data
        data=data,
        features=_parse_features(data),
        key=location.key,
        split=location.split,
    )


def _find_record_files(paths: Sequence[str]) -> list[str]:
    """Returns the TFRecord files at the paths; searches folders.

    Raises UsageError if a path does not exist, or a folder has no TFRecord file.
    """
    return [file for path in paths for file in _files_of(path)]


def _exists(path: str) -> bool:
    try:
        return exists(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _files_of(path: str) -> list[str]:
    if not _exists(path):
        raise UsageError(f"{path}: no such file or folder; expected TFRecord files or a dataset")
    below = _below(path)
    if below is None:
        return [path]
    if not below:
        raise UsageError(
            f"{path}: contains no file named *tfrecord*. Pass the files, or a dataset: "
            "DIR/NAME/VERSION"
        )
    return [layout.join(path, name) for name in below]


def _below(path: str) -> list[str] | None:
    """Returns the names of the TFRecord files below a folder; None if the path is not a folder."""
    if is_local(path) and not _is_folder(path):
        return None
    # Object stores have no folders: a prefix without files below it is assumed to be a file.
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


def _read_records(file: str) -> Iterator[FoundRecord]:
    """Yields the records of a file.

    Raises VerificationFailed: at the first damaged record, with its number and byte offset. Raises
    UsageError if the file cannot be opened.
    """
    number = 0
    try:
        with open_binary(file) as stream:
            for frame in read_frames(decompressed(stream)):
                yield FoundRecord(
                    file, number, frame.offset, frame.data, _parse_features(frame.data)
                )
                number += 1
    except FrameError as error:
        raise VerificationFailed(_damage(file, error)) from error
    except (OSError, *DAMAGED_STREAM) as error:
        # Only errors of the file system have an errno, not those of a compressed stream.
        if number == 0 and isinstance(error, OSError) and error.errno:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        what = f"the compressed stream is damaged or truncated: {error}"
        raise VerificationFailed(f"{file}: record {number}: {what}; {_before(number)}") from error


def _damage(file: str, error: FrameError) -> str:
    problem = f"{file}: record {error.record} at byte {error.offset}: {error}"
    if error.record == 0 and error.offset == 0:
        is_table = file.lower().endswith(_TABLES)
        remedy = f". For a table, run: recordmill schema --infer {file}" if is_table else ""
        return f"{problem}; the file is damaged, or is not a TFRecord file{remedy}"
    return f"{problem}; {_before(error.record)}"


def _before(number: int) -> str:
    return f"the {number:,} {'record' if number == 1 else 'records'} before it can be read"


def _parse_features(data: bytes) -> dict[str, list[Any]] | None:
    """Returns the features of a serialized example; None if the bytes cannot be parsed."""
    try:
        return read_features(data)
    except ValueError:
        return None
