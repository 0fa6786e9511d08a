"""Reads single records of a published dataset, by number or by key, without TensorFlow or Beam.

For PyTorch, JAX and notebooks: a map-style dataset, as `torch.utils.data.DataLoader` and Grain
expect one.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.records import example_reader
from recordmill.transforms.functional.splits import RecordRange
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.published import newest_version


class Records:
    """The records of a split, for random access; each is read and checked on access.

    `records[0]`, `records[-1]` and `records["photos/1.jpg"]` are dicts: Example key to an int, a
    float, bytes, an array or a list of bytes; the image is uint8 or uint16, (height, width,
    channels).
    In a sequence, a frame feature is an array, (frames, …), or a list with one item per frame.
    Arrays are writable. `records[10:20]` and `records[[7, 3]]` are `Records` objects as well.
    Objects can be shared by threads, forked and pickled; a pickle has the manifest and the index,
    16 bytes per record, and no open file.

    Attributes:
        path: the dataset's folder, DIR/NAME/VERSION.
        split: the records, in TFDS's split syntax.
        class_names: the class names by feature, in the order of their ids.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | DatasetFolder,
        split: str = "train",
        *,
        features: Sequence[str] | None = None,
        decode: bool = True,
        channels: int = 3,
        dtype: example_reader.PixelType = "uint8",
        transform: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        """Reads the index of the records; records are read on access.

        Args:
            path: the dataset's folder, DIR/NAME/VERSION, or DIR/NAME for its newest version, local
                or in an object store; or the dataset itself.
            split: a split or slice, such as `train`, `train[:80%]` or `train[100:200]+test`.
            features: the features to return; all by default.
            decode: whether to decode the image; otherwise its stored bytes are returned.
            channels: channels of decoded images: 3 for RGB, 1 for gray, 0 for the stored number.
            dtype: the type of their pixels: "uint8", which reduces 16 bits to the high byte, with a
                warning; or "uint16", in which those of 8 bits are multiplied by 257.
            transform: a function that is applied to each record; its result is returned instead.

        Raises:
            VerificationFailed: if no dataset is published there.
            UsageError: if there is no such split, slice or feature, or the shards are compressed.
        """
        dataset = (
            path if isinstance(path, DatasetFolder) else DatasetFolder.open(newest_version(path))
        )
        _check_seekable(dataset)
        self.path, self.split = dataset.directory, split
        names = None if features is None else tuple(features)
        schema = dataset.manifest.dataset_schema
        self._reader = example_reader.ExampleReader(schema, names, decode, channels, dtype)
        # The counts of images, until they are warned of; slices share them.
        self._unwarned = dict(dataset.manifest.images) if self._reader.decodes else {}
        self._transform = transform
        self.class_names = dataset.classes
        self._index = _Index(dataset, split)
        self._rows: range | list[int] = range(self._index.size)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> Any: ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | np.ndarray) -> Records: ...
    def __getitem__(self, which: SupportsIndex | str | slice | Sequence[int] | np.ndarray) -> Any:
        if isinstance(which, str):
            return self.__getitems__([self.number(which)])[0]
        part = copy(self)  # shares the index of all records
        if isinstance(which, slice):
            part._rows = self._rows[which]
            return part
        numbers = np.asarray(which)  # an array of one number has __index__ as well
        if not numbers.ndim:
            return self.__getitems__([numbers])[0]
        chosen = np.flatnonzero(numbers) if numbers.dtype == bool else numbers
        part._rows = [self._rows[number] for number in chosen.tolist()]
        return part

    def __getitems__(self, numbers: Sequence[SupportsIndex]) -> list[Any]:
        """Returns several records, as PyTorch's `DataLoader` fetches a batch.

        In an object store, records that are close to each other take one request.
        """
        if self._unwarned:  # the caller of `__getitem__` is two frames above
            example_reader.warn_of_lost_bits(
                self._unwarned, self._reader.dtype, "Records", stacklevel=4
            )
            self._unwarned.clear()
        # `_rows` maps numbers of this slice to rows of the shared index.
        rows = [self._rows[number] for number in numbers]
        found = zip(rows, self._index.read(rows), strict=True)
        return [self._read(row, data) for row, data in found]

    def _read(self, row: int, data: bytes) -> Any:
        try:
            record = self._reader.read(data)
        except ValueError as error:
            raise self._index.damaged(row, str(error)) from error
        return record if self._transform is None else self._transform(record)

    def __iter__(self) -> Iterator[Any]:
        return (self.__getitems__([number])[0] for number in range(len(self)))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __repr__(self) -> str:
        return f"Records({self.path!r}, {self.split!r}): {len(self):,} records"

    def keys(self) -> list[str]:
        """Returns the keys of the records, in order."""
        found: list[str] = self._index.keys.take(
            pa.array(np.asarray(self._rows, np.int64))
        ).to_pylist()
        return found

    def sample_weights(self) -> np.ndarray:
        """Returns the weight of each record, float64, by which all classes are sampled equally.

        It is that of the record's class in these records, as in `Dataset.class_weights`; for
        `torch.utils.data.WeightedRandomSampler`.

        Raises:
            UsageError: if records have no class, or several.
        """
        ids = self._index.class_ids()[np.asarray(self._rows, np.int64)]
        weights = {NO_CLASS: 0.0, **_balanced_weights(ids)}
        found, of_records = np.unique(ids, return_inverse=True)
        return np.array([weights[number] for number in found.tolist()])[of_records]

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
    """The byte ranges and keys of all records of a split, shared by slices."""

    def __init__(self, dataset: DatasetFolder, split: str) -> None:
        self._dataset = dataset
        self._parts = dataset.select(split)
        table = dataset.columns(self._parts, ["offset", "length"])
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
        # The offsets of `string` end at 2 GiB for all keys that are taken.
        return self._dataset.columns(self._parts, ["key"])["key"].cast(pa.large_string())

    def class_ids(self) -> np.ndarray:
        return _class_ids(self._dataset, self._parts)

    def find(self, key: str) -> Iterator[int]:
        """Yields the rows with a key, by binary search."""
        at = bisect_left(self._order, key, key=self._key)
        while at < self.size and self._key(self._order[at]) == key:
            yield int(self._order[at])
            at += 1

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Returns records; VerificationFailed if one is damaged, or is not the published one."""
        starts, lengths = self._offsets, self._lengths
        spans = [(*self._location(row), (int(starts[row]), int(lengths[row]))) for row in rows]
        return self._dataset.read_records(spans)

    def damaged(self, row: int, what: str) -> VerificationFailed:
        """Returns the error for a damaged record."""
        return self._dataset.damaged(*self._location(row), int(self._offsets[row]), what)

    def _location(self, row: int) -> tuple[ShardEntry, int]:
        """Returns the shard of a record, and the index of the record in the shard."""
        # _ends[i] is the number of records in the first i + 1 ranges.
        at = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[at]
        number = part.skip + part.take - int(self._ends[at] - row)
        return self._dataset.shard(part.split, part.shard), number

    @cached_property
    def _order(self) -> np.ndarray:
        order: np.ndarray = pc.sort_indices(self.keys).to_numpy()
        return order

    def _key(self, row: int) -> str:
        key: str = self.keys[int(row)].as_py()
        return key


def _check_seekable(dataset: DatasetFolder) -> None:
    if not dataset.shard_format.seekable:
        raise UsageError(
            f"{dataset.directory}: its shards are compressed, and {dataset.shard_format.name} "
            "streams are not seekable. "
            "Read it in order with recordmill.load, or convert with --compression none."
        )


# The class id of a record without a label.
NO_CLASS = -1


def class_weights(dataset: DatasetFolder, split: str) -> dict[int, float]:
    """Returns the weight of each class of a split or slice.

    Raises UsageError if records have no class, or several.
    """
    ids = _class_ids(dataset, dataset.select(split))
    names = dataset.manifest.classes[dataset.manifest.dataset_schema.named_features[0]]
    return {**dict.fromkeys(range(len(names)), 0.0), **_balanced_weights(ids)}


def _class_ids(dataset: DatasetFolder, parts: Sequence[RecordRange]) -> np.ndarray:
    """Returns the class id of each record, (records,), or -1; no shard is read."""
    schema = dataset.manifest.dataset_schema
    feature = next(iter(schema.named_features), None)
    column = dataset.columns(parts, ["class"])["class"]
    if feature is None or not pa.types.is_string(column.type):
        lists = f"{feature!r} is a list of labels, which .splits[NAME].classes counts by id"
        what = "has no class labels" if feature is None else lists
        raise UsageError(
            f"{dataset.directory}: class weights need one label per record, but schema "
            f"{schema.name!r}: {what}."
        )
    # Names or numbers are looked up once per class, not once per record.
    distinct = column.combine_chunks().dictionary_encode()
    names = dataset.manifest.classes.get(feature, ())
    known = {name: number for number, name in enumerate(names)}
    ids = [known[name] if known else int(name) for name in distinct.dictionary.to_pylist()]
    rows: np.ndarray = distinct.indices.fill_null(NO_CLASS).to_numpy()
    return np.take([*ids, NO_CLASS], rows)  # -1 selects the last: no class


def _balanced_weights(ids: np.ndarray) -> dict[int, float]:
    """Returns the weight of each class, as scikit-learn computes `class_weight="balanced"`.

    It is records / (classes * records of the class), over the classes that occur. `ids` are the
    class id of each record, (records,); -1 for none.
    """
    found, counts = np.unique(ids[ids != NO_CLASS], return_counts=True)
    weights = counts.sum() / (len(found) * counts)
    return dict(zip(found.tolist(), weights.tolist(), strict=True))
