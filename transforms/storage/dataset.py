"""Reads a published dataset: manifest, record indexes, records and rejects.

Of an object store, close records are read with one request, and several requests are concurrent.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas import layout, shard_format
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.sources.parquet import table_batches
from recordmill.transforms.functional.splits import (
    RecordRange,
    parse_split,
    record_ranges,
    share_of,
)
from recordmill.transforms.storage import files, published
from recordmill.transforms.storage.local_files import open_regular
from recordmill.transforms.storage.shard_files import uncompressed

if TYPE_CHECKING:
    from typing_extensions import Self

LOCATION_COLUMNS = ("key", "split", "shard", "index", "offset", "length", "sha256", "class")

# Expected types of the columns that locate a record; they must not have nulls.
_TYPES = {"key": pa.string(), "offset": pa.int64(), "length": pa.int64()}

# A gap between two ranges that takes less time to read than another request.
_MAX_GAP = 2**20

# Shards that stay open: far below the usual limit of 1,024 file descriptors.
_OPEN_FILES = 256

_NO_RECORDS = pa.table(
    {name: pa.array([], _TYPES.get(name, pa.string())) for name in LOCATION_COLUMNS}
)


class RecordLocation(NamedTuple):
    """The location of a record: one row of its shard's index."""

    key: str
    split: str
    shard: int  # number of the shard within the split, from 0
    record: int  # number of the record within the shard, from 0
    offset: int  # first byte of its data in the uncompressed shard
    length: int  # bytes of its data
    sha256: str  # hex digest of its image as stored, or ""
    classes: tuple[str, ...]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> RecordLocation:
        """Returns the location in a row of an index."""
        label = row["class"]
        classes = tuple(label) if isinstance(label, list) else () if label is None else (label,)
        numbers = (row["shard"], row["index"], row["offset"], row["length"])
        return cls(row["key"], row["split"], *numbers, row["sha256"] or "", classes)


@dataclass(frozen=True, eq=False)
class _Shards(Mapping[tuple[str, int], ShardEntry]):
    """All shards of a dataset by (split, number).

    Not a dict, because 100,000 new keys would make Python's garbage collector scan the manifest.
    """

    splits: Mapping[str, SplitEntry]

    def __getitem__(self, key: tuple[str, int]) -> ShardEntry:
        split, number = key
        shards = self.splits[split].shards
        if not 0 <= number < len(shards):
            raise KeyError(key)
        return shards[number]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((name, i) for name, split in self.splits.items() for i in range(len(split.shards)))

    def __len__(self) -> int:
        return sum(len(split.shards) for split in self.splits.values())


@dataclass(frozen=True, repr=False)
class DatasetFolder:
    """The folder of a dataset, published or about to be published.

    What reads an index or record raises VerificationFailed if it is missing, cannot be read, is
    damaged, or is not the published one.
    """

    directory: str  # the dataset's folder, DIR/NAME/VERSION, on this machine or in an object store
    manifest: Manifest  # the splits, shards, classes and options of the dataset
    manifest_sha256: str = ""  # checksum of manifest.json; "" if the file has not been read
    is_committed: bool = False  # whether the commit marker has this checksum

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], read: published.Read = published.read_file
    ) -> Self:
        """Opens a published dataset, and checks its manifest against the commit marker.

        Raises VerificationFailed if no dataset is published there, or its manifest was changed.
        """
        dataset = cls.open_unchecked(directory, read)
        if not dataset.is_committed:
            raise VerificationFailed(
                f"{dataset.path(layout.MANIFEST)}: does not match the checksum in "
                f"{layout.SUCCESS}. Convert again, or restore it from a backup."
            )
        return dataset

    @classmethod
    def open_unchecked(
        cls, directory: str | os.PathLike[str], read: published.Read = published.read_file
    ) -> Self:
        """Opens a dataset that has a commit marker, even one that does not match the manifest.

        Raises VerificationFailed if the commit marker is missing, or the manifest cannot be read.
        """
        folder = os.fspath(directory).rstrip("/") or "/"
        return cls(folder, *published.read_manifest(folder, read))

    @classmethod
    def named(cls, path: str) -> Self:
        """Opens the dataset that an argument names: DIR/NAME/VERSION, or DIR/NAME for its newest.

        Raises UsageError if no dataset is published there, or its manifest was changed.
        """
        try:
            return cls.open(published.newest_version(path))
        except VerificationFailed as error:
            raise UsageError(str(error)) from error

    def __repr__(self) -> str:
        splits = self.manifest.ordered_splits
        records = ", ".join(f"{name} {split.records:,}" for name, split in splits.items())
        return f"{type(self).__name__}({self.directory!r}): {records} records"

    @property
    def splits(self) -> Mapping[str, SplitEntry]:
        """Splits by name, in order: `dataset.splits["train"].records` is a number of records."""
        return self.manifest.splits

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class names by feature, in id order; features without classes are left out."""
        return {name: names for name, names in self.manifest.classes.items() if names}

    @property
    def shard_format(self) -> shard_format.ShardFormat:
        """The format of the shards; raises UsageError if this version of recordmill lacks it."""
        name = self.manifest.config.get("compression", "none")
        if name in shard_format.SHARD_FORMATS:
            return shard_format.SHARD_FORMATS[name]
        raise UsageError(
            f"{self.path(layout.MANIFEST)}: unknown compression of shards {name!r}; expected "
            f"{' or '.join(shard_format.SHARD_FORMATS)}. Read the dataset with the version of "
            "recordmill that wrote it, or a later one."
        )

    @property
    def report(self) -> str:
        """The path of the report, which exists unless it was switched off."""
        return self.path(layout.REPORT)

    def path(self, name: str) -> str:
        """Returns the path of a file of the dataset, given its relative name."""
        return layout.join(self.directory, name)

    def select(self, split: str, share: tuple[int, int] = (0, 1)) -> list[RecordRange]:
        """Returns the shards of a split or slice, with the range of records in each, in order.

        `split` is a split or slice in TFDS's syntax: `train[:80%]`, `train[100:200]+test`. Raises
        UsageError: for an unknown split, an invalid slice or an invalid share.
        """
        index, count = share
        if not 0 <= index < count:
            raise UsageError(f"share={share}: expected (i, n) with i from 0 to n - 1")
        lengths = {name: [s.records for s in entry.shards] for name, entry in self.splits.items()}
        return record_ranges(share_of(parse_split(split, lengths), index, count), lengths)

    def shard(self, split: str, number: int) -> ShardEntry:
        """Returns a shard."""
        return self.splits[split].shards[number]

    def shards(self) -> Mapping[tuple[str, int], ShardEntry]:
        """Returns all shards by (split, number), in order."""
        return _Shards(self.splits)

    def index(self, shard: ShardEntry, columns: Sequence[str]) -> pa.Table:
        """Reads columns of a shard's index, and checks its checksum against the manifest."""
        return read_index(self.path(shard.index_file), columns, shard.index_sha256, shard.records)

    def columns(self, parts: Sequence[RecordRange], names: Sequence[str]) -> pa.Table:
        """Reads index columns of ranges of records, in order."""
        tables = [
            self.index(self.shard(part.split, part.shard), names).slice(part.skip, part.take)
            for part in parts
        ]
        return pa.concat_tables(tables) if tables else _NO_RECORDS.select(names)

    def batches(self, shard: ShardEntry, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of a shard's index in batches, without checking its checksum."""
        return index_batches(self.path(shard.index_file), columns, records=shard.records)

    def locations(
        self, shard: ShardEntry, classes: Collection[str] = ()
    ) -> Iterator[RecordLocation]:
        """Yields the locations of a shard's records, in order, as `batches` reads them.

        `classes` are the classes to select; all records if empty.
        """
        for batch in self.batches(shard, LOCATION_COLUMNS):
            labels = batch.column("class")
            # Arrow filters single labels; lists of labels are compared row by row below.
            if classes and pa.types.is_string(labels.type):
                batch = batch.filter(pc.is_in(labels, value_set=pa.array(list(classes))))
            for row in batch.to_pylist():
                location = RecordLocation.of(row)
                if not classes or not set(classes).isdisjoint(location.classes):
                    yield location

    def located(self, shard: ShardEntry, numbers: Sequence[int]) -> list[RecordLocation]:
        """Returns the locations of some records; raises IndexError if the shard has fewer."""
        return list(map(RecordLocation.of, self._rows(shard, numbers, LOCATION_COLUMNS)))

    def find(self, key: str) -> RecordLocation | None:
        """Returns the location of the record with a key, or None; reads the indexes one by one."""
        # Keys are ordered by their hash, not sorted, so every index may have the key.
        for shard in self.shards().values():
            index = self.index(shard, LOCATION_COLUMNS)
            found = index.filter(pc.equal(index["key"], pa.scalar(key))).to_pylist()
            if found:
                return RecordLocation.of(found[0])
        return None

    def record(self, shard: ShardEntry, number: int, span: tuple[int, int] | None = None) -> bytes:
        """Reads one record by its byte range, and checks its two CRCs.

        `span`: (offset, length) of its data from the index, if known.
        """
        if span is None:
            (row,) = self._rows(shard, [number], ("offset", "length"))
            span = row["offset"], row["length"]
        if shard_format.format_of_file(shard.file).seekable:
            return self.read_records([(shard, number, span)])[0]
        return self._checked(shard, number, span, self._unpacked(shard, number, *span))

    def read_records(
        self, locations: Sequence[tuple[ShardEntry, int, tuple[int, int]]]
    ) -> list[bytes]:
        """Reads records of shards that are seekable, and checks the two CRCs of each.

        In an object store, records that are close to each other take one request. `locations`:
        (shard, number within the shard, (offset, length)) of each record.
        """
        ranges = [
            _ByteRange(self.path(shard.file), shard.sha256, *_frame_range(*span))
            for shard, _, span in locations
        ]
        frames = zip(locations, _read_ranges(ranges), strict=True)
        return [self._checked(*location, data) for location, data in frames]

    def _checked(
        self, shard: ShardEntry, number: int, span: tuple[int, int], framed: bytes
    ) -> bytes:
        offset, length = span
        try:
            frame = next(framing.read_frames(io.BytesIO(framed)), None)
        except framing.FrameError as error:
            raise self.damaged(shard, number, offset, str(error)) from error
        if frame is None or len(frame.data) != length:
            raise self.damaged(shard, number, offset, "is not the one in the index")
        return frame.data

    def damaged(self, shard: ShardEntry, number: int, offset: int, what: str) -> VerificationFailed:
        """Returns the error for a damaged record, with its shard, number, first byte and key."""
        # Without a key if the index is damaged as well.
        with contextlib.suppress(VerificationFailed, IndexError):
            what = f"{what} (key {self._rows(shard, [number], ('key',))[0]['key']!r})"
        problem = Problem(shard.file, what, number, framing.frame_start(offset))
        return VerificationFailed(f"{self.directory}: {problem}")

    def rejects(self) -> Iterator[dict[str, Any]]:
        """Yields all rejected rows: key, uri, source, reason and detail.

        Raises OSError if they cannot be read. Raises ValueError: at a line that is not JSON.
        """
        return map(json.loads, read_lines(self.directory, layout.REJECTS))

    def dropped(self) -> Iterator[dict[str, Any]]:
        """Yields all rows dropped as duplicates.

        Raises OSError if they cannot be read. Raises ValueError: at a line that is not JSON.
        """
        return map(json.loads, read_lines(self.directory, layout.DROPPED))

    def _rows(
        self, shard: ShardEntry, numbers: Sequence[int], columns: Sequence[str]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.index(shard, columns).take(list(numbers)).to_pylist()
        return rows

    def _unpacked(self, shard: ShardEntry, number: int, offset: int, length: int) -> bytes:
        """Returns a framed record of a compressed shard, cut short at the end of the shard."""
        path, (start, stop) = self.path(shard.file), _frame_range(offset, length)
        try:
            # There are no entry points: everything before the record is decompressed.
            with uncompressed(path) as stream:
                stream.seek(start)
                return stream.read(stop - start)
        except shard_format.DAMAGED_STREAM as error:  # one of them is an OSError
            raise self.damaged(shard, number, offset, str(error)) from error
        except OSError as error:
            raise published.unreadable(path, error) from error


def _frame_range(offset: int, length: int) -> tuple[int, int]:
    """Returns the byte range of a framed record; an empty one if the index is wrong."""
    start = framing.frame_start(offset)
    if start < 0 or not 0 <= length <= framing.MAX_RECORD_BYTES:
        return 0, 0  # no record is found there
    return start, start + framing.frame_size(length)


def read_index(
    path: str, columns: Sequence[str], sha256: str | None = None, records: int | None = None
) -> pa.Table:
    """Reads columns of a record index; raises VerificationFailed as `index_batches` does."""
    table = pa.Table.from_batches(index_batches(path, columns, sha256, records))
    for name in columns:
        column, expected = table[name], _TYPES.get(name)
        if expected is not None and (column.type != expected or column.null_count):
            what = f"{column.type} with {column.null_count} nulls"
            raise VerificationFailed(
                f"{path}: is not a valid index: column {name!r}: expected {expected} without "
                f"nulls, got {what}. Convert again."
            )
    return table


def index_batches(
    path: str, columns: Sequence[str], sha256: str | None = None, records: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields columns of a record index, whose checksum and number of records are checked if given.

    Raises VerificationFailed if it is missing, cannot be read, is not valid, or another one.
    """
    data = published.content(path)
    if data is None:
        raise VerificationFailed(f"{path}: is missing. Restore it from a backup.")
    # Parsed from the same bytes that are hashed: the file may be replaced between two reads.
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise VerificationFailed(
            f"{path}: is not the file that {layout.MANIFEST} lists: its sha256 differs. "
            "Restore it from a backup."
        )
    try:
        yield from table_batches(data, columns, records)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # bad Thrift is an OSError
        raise VerificationFailed(
            f"{path}: is not a valid index: {error}. Convert again."
        ) from error


def read_lines(directory: str, folder: str) -> Iterator[bytes]:
    """Yields the lines of a dataset's rejects or dropped rows, with their line breaks.

    `folder` is one of `layout.LINES`; a missing file has no lines. Raises OSError if they cannot be
    read.
    """
    try:
        stream = files.open_binary(layout.join(directory, layout.lines_name(folder)))
    except FileNotFoundError:
        return
    with stream:
        yield from stream


class _ByteRange(NamedTuple):
    path: str
    sha256: str  # its checksum, so that a replaced file is opened again
    start: int
    stop: int


def _read_ranges(ranges: Sequence[_ByteRange]) -> list[bytes]:
    """Returns the bytes of each range, in any order; fewer where a file ends."""
    if not ranges or not layout.is_url(ranges[0].path):
        return list(map(_read, ranges))  # local reads cost too little to join them
    requests = list(_coalesced(ranges))
    # Threads of its own, because threads do not survive a fork of the process.
    contents = list(map_in_threads(_read, (request for request, _ in requests)))
    found = [b""] * len(ranges)
    for (request, numbers), data in zip(requests, contents, strict=True):
        for number in numbers:
            first = ranges[number].start - request.start
            found[number] = data[first : ranges[number].stop - request.start]
    return found


def _coalesced(
    ranges: Sequence[_ByteRange], max_gap: int = _MAX_GAP
) -> Iterator[tuple[_ByteRange, list[int]]]:
    """Yields ranges that cover those up to `max_gap` bytes apart, each with the numbers of these.

    >>> ranges = [_ByteRange("s3://b/x", "", *span) for span in ((90, 95), (0, 10), (12, 20))]
    >>> [(span.start, span.stop, numbers) for span, numbers in _coalesced(ranges, max_gap=5)]
    [(0, 20, [1, 2]), (90, 95, [0])]
    """
    whole, numbers = None, list[int]()
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        part = ranges[number]
        if whole and whole.path == part.path and part.start <= whole.stop + max_gap:
            whole = whole._replace(stop=max(whole.stop, part.stop))
            numbers.append(number)
            continue
        if whole:
            yield whole, numbers
        whole, numbers = part, [number]
    if whole:
        yield whole, numbers


def _read(requested: _ByteRange) -> bytes:
    path, sha256, start, stop = requested
    try:
        if layout.is_url(path):
            return files.read(path, (start, stop))
        # One pread of a file that stays open, safe for threads and forks.
        file = _open_file(path, sha256)  # held, or it may be closed meanwhile
        return os.pread(file.fileno(), stop - start, start)
    except OSError as error:
        raise published.unreadable(path, error) from error


@lru_cache(_OPEN_FILES)
def _open_file(path: str, sha256: str) -> BinaryIO:
    """Opens a shard; the checksum is a cache key, so that a replaced shard is opened again."""
    return open_regular(path)
