"""Reads single records of a published dataset, by number or by key, without TensorFlow or Beam.

For PyTorch, JAX and notebooks: a map-style dataset as `torch.utils.data.DataLoader` and Grain take.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import ProofError, UsageError
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.transforms.functional.records.example_reader import ExampleReader
from recordmill.transforms.functional.records.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    FrameError,
    read_frames,
)
from recordmill.transforms.functional.splits import parse_split, shard_parts
from recordmill.transforms.storage.published import published_manifest
from recordmill.transforms.storage.published_index import read_index
from recordmill.transforms.storage.stores.local import open_regular

_OPEN_FILES = 256


class Records:
    """The records of a split: each is read when it is asked for, and its checksums are checked.

    `records[0]`, `records[-1]` and `records["photos/1.jpg"]` are dicts: Example key to an int, a
    float, bytes, an array or a list of bytes; the picture is uint8, (height, width, channels).
    Of a sequence, what its frames hold is an array, (frames, …), or a list with an item a frame.
    `records[10:20]` is `Records` again. They can be shared by threads, forked and pickled: what
    travels is the index, 20 bytes a record, and no open file.

    Attributes:
        path: the dataset's folder, DIR/NAME/VERSION.
        split: which records, in TFDS's syntax.
        class_names: feature to its class names, in the order of their ids.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        split: str = "train",
        *,
        features: Sequence[str] | None = None,
        decode: bool = True,
        channels: int = 3,
    ) -> None:
        """Reads the index of the records, and none of them.

        Args:
            path: the dataset's folder, on this machine or in an object store.
            split: as in `train`, `train[:80%]` or `train[100:200]+test`.
            features: which features to give; all, if not said.
            decode: whether to decode the picture; otherwise its bytes are given as they are stored.
            channels: of a decoded picture: 3 for RGB, 1 for gray, 0 for as many as are stored.

        Raises:
            ProofError: if no dataset is published there.
            UsageError: for a split, slice or feature that it has not, and if it is gzipped.
        """
        self.path, self.split = os.fspath(path), split
        manifest = published_manifest(self.path)
        _refuse_gzip(manifest, self.path)
        names = None if features is None else tuple(features)
        self._reader = ExampleReader(manifest.dataset_schema, names, decode, channels)
        self.class_names = {name: names for name, names in manifest.classes.items() if names}
        self._index = _Index(self.path, manifest, split)
        self._rows = range(self._index.size)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, which: int | str) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, which: slice) -> Records: ...
    def __getitem__(self, which: int | str | slice) -> dict[str, Any] | Records:
        if isinstance(which, slice):
            part = copy(self)
            part._rows = self._rows[which]
            return part
        row = self._rows[self.number(which) if isinstance(which, str) else which]
        data = self._index.read(row)
        try:
            return self._reader.read(data)
        except ValueError as error:
            raise ProofError(f"{self.path}: {self._index.problem(row, str(error))}") from error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __repr__(self) -> str:
        return f"Records({self.path!r}, {self.split!r}): {len(self):,} records"

    def keys(self) -> list[str]:
        """Returns the records' keys, in their order."""
        rows = np.arange(self._rows.start, self._rows.stop, self._rows.step)
        found: list[str] = self._index.keys.take(pa.array(rows)).to_pylist()
        return found

    def number(self, key: str) -> int:
        """Returns the number of the record with a key.

        Raises:
            KeyError: if there is none.
        """
        number = self._find(key)
        if number is None:
            raise KeyError(key)
        return number

    def _find(self, key: str) -> int | None:
        numbers = (self._rows.index(row) for row in self._index.find(key) if row in self._rows)
        return min(numbers, default=None)


class _Index:
    """Where the records are; read once, shared by all slices.

    Attributes:
        size: how many records there are.
    """

    def __init__(self, path: str, manifest: Manifest, split: str) -> None:
        lengths = {s: [shard.records for shard in e.shards] for s, e in manifest.splits.items()}
        self._path = path
        self._parts = shard_parts(parse_split(split, lengths), lengths)
        self._shards = [manifest.splits[part.split].shards[part.shard] for part in self._parts]
        table = self._columns(["offset", "length"])
        self._offsets: np.ndarray = table["offset"].to_numpy()
        self._lengths: np.ndarray = table["length"].to_numpy()
        self._ends = np.cumsum([part.take for part in self._parts], dtype=np.int64)
        self.size = len(self._offsets)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("keys", "_order")}

    @cached_property
    def keys(self) -> pa.ChunkedArray:
        """The records' keys; read when they are first needed."""
        return self._columns(["key"])["key"]

    def find(self, key: str) -> Iterator[int]:
        """Yields the rows that have a key."""
        at = bisect_left(self._order, key, key=self._key)
        while at < self.size and self._key(self._order[at]) == key:
            yield int(self._order[at])
            at += 1

    def read(self, row: int) -> bytes:
        """Returns a record.

        Raises:
            ProofError: if its checksums do not fit, or it is not the one that was published.
        """
        shard, _ = self._place(row)
        start = int(self._offsets[row]) - HEADER_BYTES
        size = int(self._lengths[row]) + FRAME_BYTES
        frame = _read_range(layout.join(self._path, shard.file), start, size, shard.sha256)
        try:
            data = next(read_frames(io.BytesIO(frame)), None)
        except FrameError as broken:
            raise ProofError(f"{self._path}: {self.problem(row, str(broken))}") from broken
        if data is None or len(data.data) != self._lengths[row]:
            raise ProofError(f"{self._path}: {self.problem(row, 'is not the one in the index')}")
        return data.data

    def problem(self, row: int, what: str) -> Problem:
        """Returns what is wrong with a record."""
        shard, number = self._place(row)
        told = f"{what} (key {self._key(row)!r})"
        return Problem(shard.file, told, number, int(self._offsets[row]) - HEADER_BYTES)

    def _place(self, row: int) -> tuple[ShardEntry, int]:
        """Returns the shard of a record, and its number there."""
        at = int(np.searchsorted(self._ends, row, side="right"))
        part = self._parts[at]
        return self._shards[at], part.skip + part.take - int(self._ends[at] - row)

    @cached_property
    def _order(self) -> np.ndarray:
        order: np.ndarray = pc.sort_indices(self.keys).to_numpy()
        return order

    def _key(self, row: int) -> str:
        key: str = self.keys[int(row)].as_py()
        return key

    def _columns(self, columns: list[str]) -> pa.Table:
        tables = [
            read_index(self._path, shard, columns).slice(part.skip, part.take)
            for part, shard in zip(self._parts, self._shards, strict=True)
        ]
        return pa.concat_tables(tables) if tables else _NOTHING.select(columns)


_NOTHING = pa.table(
    {
        "key": pa.array([], pa.string()),
        **dict.fromkeys(("offset", "length"), pa.array([], pa.int64())),
    }
)


def _refuse_gzip(manifest: Manifest, path: str) -> None:
    if manifest.config.get("compression", "none") != "none":
        raise UsageError(
            f"{path}: its shards are gzipped, and nobody can seek in a gzip stream; "
            "read it in order with recordmill.load, or convert with --compression none"
        )


def _read_range(path: str, start: int, size: int, sha256: str) -> bytes:
    """Returns a range of a shard; of another shard in the same place nothing is taken for it."""
    if not layout.is_url(path):
        return _open_file(path, sha256).read(start, size)
    from recordmill.transforms.storage.files import open_binary  # Beam's file systems

    with open_binary(path) as stream:
        stream.seek(start)
        return stream.read(size)


class _OpenFile:
    """A file that threads and forked processes can read at once: it has no position of its own."""

    def __init__(self, path: str) -> None:
        self._handle = open_regular(path)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._handle.fileno(), size, start)


@lru_cache(_OPEN_FILES)
def _open_file(path: str, sha256: str) -> _OpenFile:
    try:
        return _OpenFile(path)
    except FileNotFoundError as error:
        raise ProofError(f"{path}: is missing; recordmill verify tells what else is") from error
    except OSError as error:
        raise ProofError(f"{path}: cannot be read: {error.strerror}") from error
