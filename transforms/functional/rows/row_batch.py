"""Rows as columns: readers, the analyze pass and the column mapping work on whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

from recordmill.schemas.records import (
    NO_CLUSTER,
    Cluster,
    Embedded,
    Location,
    Row,
    SkippedInput,
)
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.rows.column_batch import Batch

# Limits of a batch: an element costs a runner some 10 µs, and is in memory as a whole.
BATCH_ROWS = 1024
BATCH_BYTES = 2**20

# The cell of a row that lacks a column of its batch. It is a singleton, also after pickling.
_ABSENT = Ellipsis

# Limit of the cells of a batch, of which rows that all have columns of their own fill few.
_MAX_CELLS = 2**18


T = TypeVar("T")


class RowBatch(Batch[Row]):
    """Rows with the same columns of untyped text, column by column; never empty.

    `files` is the table of each row, as in `Row`. `is_text`: whether values are untyped text, or
    the columns with such values.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        files: Sequence[str],
        lines: Sequence[int],
        is_text: bool | frozenset[str] = False,
        images: Sequence[Location | None] = (),
        clusters: Sequence[Cluster] = (),
        is_sparse: bool = False,
        keys: Sequence[str | None] = (),
    ) -> None:
        """Creates a batch.

        `columns` is the value of each row by table column; None if it is missing. `is_text`:
        whether values are untyped text, or the columns with such values. `images` is the location
        of the image of each row; () if columns determine all images. `clusters` is the cluster of
        each row; () if there are none. `is_sparse`: whether a row can lack a column, in the columns
        of another batch. `keys` is the key of each row that is a record; () if none is.
        """
        self._columns, self._is_sparse = dict(columns), is_sparse
        self.files, self.lines, self.is_text = files, lines, is_text
        self.images = images or (None,) * len(lines)
        self.clusters = clusters or (NO_CLUSTER,) * len(lines)
        self.keys = keys or (None,) * len(lines)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> RowBatch:
        """Returns a batch of rows with the same columns of untyped text, one at least."""
        if isinstance(rows, RowBatch):
            return rows
        values, files, lines, is_text, images, clusters, keys = zip(*rows, strict=True)
        names = tuple(values[0])
        is_sparse = any(tuple(row) != names for row in values)
        if is_sparse:
            names = tuple(dict.fromkeys(chain.from_iterable(values)))
        columns = {name: [row.get(name, _ABSENT) for row in values] for name in names}
        return cls(columns, files, lines, is_text[0], images, clusters, is_sparse, keys)

    @property
    def names(self) -> list[str]:
        """The columns that one of the rows has at least."""
        return list(self._columns)

    def column(self, name: str) -> Sequence[Any]:
        """Returns the value of each row in a column; None where it is missing."""
        values = self._columns.get(name)
        if values is None:
            return [None] * len(self)
        return [None if v is _ABSENT else v for v in values] if self._is_sparse else values

    def untyped(self, column: str) -> bool:
        """Returns whether the values of a column are untyped text."""
        return self.is_text if isinstance(self.is_text, bool) else column in self.is_text

    def with_text(self, values: Mapping[str, str | None]) -> RowBatch:
        """Returns the rows with more columns of untyped text."""
        columns = {**self._columns, **{name: [v] * len(self) for name, v in values.items()}}
        is_text = self.is_text
        if not isinstance(is_text, bool) or not is_text:
            is_text = frozenset({*values, *(is_text or ())})
        others = (self.images, self.clusters, self._is_sparse, self.keys)
        return RowBatch(columns, self.files, self.lines, is_text, *others)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.lines)

    def take(self, positions: Sequence[int]) -> RowBatch:
        """Returns the rows at some positions, one at least."""

        def of(values: Sequence[T]) -> list[T]:
            return [values[i] for i in positions]

        columns = {name: of(values) for name, values in self._columns.items()}
        others = (self.is_text, of(self.images), of(self.clusters), self._is_sparse, of(self.keys))
        return RowBatch(columns, of(self.files), of(self.lines), *others)

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows."""
        cells: Iterable[tuple[Any, ...]] = zip(*self._columns.values(), strict=True)
        if not self._columns:
            cells = repeat((), len(self))
        located = (self.files, self.lines, self.images, self.clusters, self.keys)
        for values, file, line, image, cluster, key in zip(cells, *located, strict=True):
            named = dict(zip(self._columns, values, strict=True))
            if self._is_sparse:
                named = {name: value for name, value in named.items() if value is not _ABSENT}
            yield Row(named, file, line, self.is_text, image, cluster, key)


def batches_of(rows: Sequence[Row]) -> Iterator[RowBatch]:
    """Yields rows as one batch; as several if they have too many different columns."""
    if not rows:
        return
    batch = RowBatch.of(rows)
    if len(rows) > 1 and len(batch.names) * len(rows) > _MAX_CELLS:
        middle = len(rows) // 2
        yield from batches_of(rows[:middle])
        yield from batches_of(rows[middle:])
    else:
        yield batch


def one_by_one(
    elements: Iterable[RowBatch | Row | Embedded | Reject | SkippedInput],
) -> Iterator[Row | Embedded | Reject | SkippedInput]:
    """Yields the rows of batches one by one, and other elements as they are."""
    for element in elements:
        if isinstance(element, RowBatch):
            yield from element
        else:
            yield element
