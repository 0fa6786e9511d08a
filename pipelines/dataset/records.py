"""Reads single records of a published dataset, by number or by key, without TensorFlow or Beam.

For PyTorch, JAX and notebooks: a map-style dataset, as `torch.utils.data.DataLoader` and Grain
expect one.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.records.example_reader import ExampleReader
from recordmill.transforms.functional.splits import RecordRange
from recordmill.transforms.storage.dataset import Dataset


class Records:
    """The records of a split, for random access; each is read and checked on access.

    `records[0]`, `records[-1]` and `records["photos/1.jpg"]` are dicts: Example key to an int, a
    float, bytes, an array or a list of bytes; the image is uint8, (height, width, channels).
    In a sequence, a frame feature is an array, (frames, …), or a list with one item per frame.
    `records[10:20]` is a `Records` object as well. Objects can be shared by threads, forked and
    pickled; a pickle has the manifest and the index, 16 bytes per record, and no open file.

    Attributes:
        path: the dataset's folder, DIR/NAME/VERSION.
        split: the records, in TFDS's split syntax.
        class_names: the class names by feature, in the order of their ids.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Dataset,
        split: str = "train",
        *,
        features: Sequence[str] | None = None,
        decode: bool = True,
        channels: int = 3,
    ) -> None:
        """Reads the index of the records; records are read on access.

        Args:
            path: the dataset's folder, local or in an object store, or the dataset itself.
            split: a split or slice, such as `train`, `train[:80%]` or `train[100:200]+test`.
            features: the features to return; all by default.
            decode: whether to decode the image; otherwise its stored bytes are returned.
            channels: channels of decoded images: 3 for RGB, 1 for gray, 0 for the stored number.

        Raises:
            VerificationFailed: if no dataset is published there.
            UsageError: if there is no such split, slice or feature, or the shards are gzipped.
        """
        dataset = path if isinstance(path, Dataset) else Dataset.open(path)
        _check_seekable(dataset)
        self.path, self.split = dataset.directory, split
        names = None if features is None else tuple(features)
        self._reader = ExampleReader(dataset.manifest.dataset_schema, names, decode, channels)
        self.class_names = dataset.classes
        self._index = _Index(dataset, split)
        self._rows = range(self._index.size)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, which: int | str) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: slice) -> Records: ...
    def __getitem__(self, which: int | str | slice) -> dict[str, Any] | Records:
        if isinstance(which, slice):
            part = copy(self)  # shares the index of all records
            part._rows = self._rows[which]
            return part
        # `_rows` maps numbers of this slice to rows of the shared index.
        row = self._rows[self.number(which) if isinstance(which, str) else which]
        data = self._index.read(row)
        try:
            return self._reader.read(data)
        except ValueError as error:
            raise self._index.damaged(row, str(error)) from error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __repr__(self) -> str:
        return f"Records({self.path!r}, {self.split!r}): {len(self):,} records"

    def keys(self) -> list[str]:
        """Returns the keys of the records, in order."""
        rows = np.arange(self._rows.start, self._rows.stop, self._rows.step)
        found: list[str] = self._index.keys.take(pa.array(rows)).to_pylist()
        return found

    def number(self, key: str) -> int:
        """Returns the number of the record with a key.

        Raises:
            KeyError: if there is no such record.
        """
        number = self._find(key)
        if number is None:
            raise KeyError(key)
        return number

    def _find(self, key: str) -> int | None:
        # A selection such as train+train has the same record more than once.
        numbers = (self._rows.index(row) for row in self._index.find(key) if row in self._rows)
        return min(numbers, default=None)


class _Index:
    """The byte ranges and keys of all records of a split, shared by slices.

    Attributes:
        size: number of records.
    """

    def __init__(self, dataset: Dataset, split: str) -> None:
        self._dataset = dataset
        self._parts = dataset.select(split)
        table = self._columns(["offset", "length"])
        self._offsets: np.ndarray = table["offset"].to_numpy()
        self._lengths: np.ndarray = table["length"].to_numpy()
        self._ends = np.cumsum([part.take for part in self._parts], dtype=np.int64)
        self.size = len(self._offsets)

    def __getstate__(self) -> dict[str, Any]:
        # A worker reads and sorts the keys itself, and only if it looks up a key.
        return {name: value for name, value in vars(self).items() if name not in ("keys", "_order")}

    @cached_property
    def keys(self) -> pa.ChunkedArray:
        """The keys of the records; read on first use."""
        return self._columns(["key"])["key"]

    def find(self, key: str) -> Iterator[int]:
        """Yields the rows with a key, by binary search."""
        at = bisect_left(self._order, key, key=self._key)
        while at < self.size and self._key(self._order[at]) == key:
            yield int(self._order[at])
            at += 1

    def read(self, row: int) -> bytes:
        """Returns a record.

        Raises:
            VerificationFailed: if the record is damaged, or is not the published one.
        """
        span = int(self._offsets[row]), int(self._lengths[row])
        return self._dataset.record(*self._location(row), span)

    def damaged(self, row: int, what: str) -> VerificationFailed:
        """Returns the error for a damaged record.

        Args:
            row: the row of the record in the index.
            what: the problem.
        """
        return self._dataset.damaged(*self._location(row), int(self._offsets[row]), what)

    def _location(self, row: int) -> tuple[ShardEntry, int]:
        """Returns the shard of a record, and the index of the record in the shard."""
        # _ends[i] is the number of records in the first i + 1 ranges.
        at = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[at]
        return self._shard(part), part.skip + part.take - int(self._ends[at] - row)

    @cached_property
    def _order(self) -> np.ndarray:
        order: np.ndarray = pc.sort_indices(self.keys).to_numpy()
        return order

    def _key(self, row: int) -> str:
        key: str = self.keys[int(row)].as_py()
        return key

    def _shard(self, part: RecordRange) -> ShardEntry:
        return self._dataset.shard(part.split, part.shard)

    def _columns(self, columns: list[str]) -> pa.Table:
        tables = [
            self._dataset.index(self._shard(part), columns).slice(part.skip, part.take)
            for part in self._parts
        ]
        return pa.concat_tables(tables) if tables else _NOTHING.select(columns)


_NOTHING = pa.table(
    {
        "key": pa.array([], pa.string()),
        **dict.fromkeys(("offset", "length"), pa.array([], pa.int64())),
    }
)


def _check_seekable(dataset: Dataset) -> None:
    if dataset.is_gzipped:
        raise UsageError(
            f"{dataset.directory}: its shards are gzipped, and gzip streams are not seekable; "
            "read it in order with recordmill.load, or convert with --compression none"
        )
