"""Rows in columns: of a source, and of references."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, overload

from recordmill.schemas.records import NO_CLUSTER, Cluster, ImageRef, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reject

if TYPE_CHECKING:
    from typing_extensions import Self

# The values of a field: one per row, or a single one that all rows have.
Column: TypeAlias = tuple[Any, ...]

T = TypeVar("T")


class Batch(Sequence[T]):
    """Rows that are held as columns, and made one by one when they are iterated."""

    @abstractmethod
    def take(self, positions: Sequence[int]) -> Self:
        """Returns the rows at some positions."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        """Returns a row, or a batch of some rows."""
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        (row,) = self.take([index])
        return row

    def __eq__(self, other: object) -> bool:
        """Returns whether the other sequence has the same rows."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Returns the rows as text."""
        return f"{type(self).__name__}.of({list(self)!r})"


class ColumnBatch(Batch[T]):
    """Rows that are named tuples of one class, as the values of each field."""

    row_class: ClassVar[type[tuple[Any, ...]]]
    fields: ClassVar[tuple[str, ...]]

    def __init__(self, columns: Iterable[Iterable[Any]]) -> None:
        """Creates a batch."""
        self.columns: tuple[Column, ...] = tuple(map(tuple, columns))

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """Returns a batch of rows."""
        if isinstance(rows, cls):
            return rows
        return cls(tuple(zip(*rows, strict=True)) or [()] * len(cls.fields))

    @classmethod
    def joined(cls, parts: Iterable[Iterable[T]]) -> Self:
        """Returns the rows of all parts, one after the other."""
        batches = [batch for batch in map(cls.of, parts) if len(batch)]
        if len(batches) < 2:
            return batches[0] if batches else cls.of(())
        first, *others = zip(*(batch.columns for batch in batches), strict=True)
        sizes = list(map(len, first))
        return cls([chain.from_iterable(first), *(_joined(parts, sizes) for parts in others)])

    def column(self, name: str) -> Column:
        """Returns the value of each row in a field."""
        return _full(self.columns[self.fields.index(name)], len(self))

    def replaced(self, **columns: Iterable[Any]) -> Self:
        """Returns the rows with other values in some fields."""
        old = zip(self.fields, self.columns, strict=True)
        return type(self)(columns.get(name, values) for name, values in old)

    def select(self, *names: str) -> list[tuple[Any, ...]]:
        """Returns the values of each row in some fields; only once if all rows have the same."""
        columns = [self.columns[self.fields.index(name)] for name in names]
        number = len(self) if any(len(column) != 1 for column in columns) else 1
        return list(zip(*(_full(column, number) for column in columns), strict=True))

    def take(self, positions: Sequence[int]) -> Self:
        """Returns the rows at some positions."""
        pick: Callable[[Column], Column]
        if isinstance(positions, range) and positions.step == 1:
            pick = itemgetter(slice(positions.start, positions.stop))
        elif len(positions) > 1:
            pick = itemgetter(*positions)
        else:
            pick = lambda column: tuple(column[i] for i in positions)  # noqa: E731
        number = len(self)
        return type(self)(pick(c) if len(c) == number else c for c in self.columns)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.columns[0])

    def __iter__(self) -> Iterator[T]:
        """Yields the rows."""
        columns = (_full(column, len(self)) for column in self.columns)
        # As `row_class._make`, but without Python code for each row.
        make: Callable[[Any], Any] = partial(tuple.__new__, self.row_class)
        return map(make, zip(*columns, strict=True))


def once(column: Sequence[Any]) -> Sequence[Any]:
    """Returns a column, or a single value if all are the same text, the same bytes, or None."""
    return column[:1] if _is_constant(column) else column


def first_of(texts: Column, others: Column) -> Column:
    """Returns each text, or the other one where it is empty.

    >>> first_of(("a", ""), ("b",)), first_of(("",), ("b", "c"))
    (('a', 'b'), ('b', 'c'))
    """
    if all(texts):
        return texts
    if not any(texts):
        return others
    others = _full(others, len(texts))
    return tuple(text or other for text, other in zip(texts, others, strict=True))


def _is_constant(column: Sequence[Any]) -> bool:
    # Of other types, equal values can differ: 0.0 equals -0.0, and 1 equals True.
    if not column or not isinstance(column[0], str | bytes | None):
        return False
    return column.count(column[0]) == len(column)


def _full(column: Column, number: int) -> Column:
    return column if len(column) == number else column * number


def _joined(columns: Sequence[Column], sizes: Sequence[int]) -> Iterable[Any]:
    """Returns the columns of one field in several batches, which have these sizes, as one."""
    first = columns[0]
    if columns.count(first) == len(columns) and _is_constant(first):
        return first[:1]
    return chain.from_iterable(map(_full, columns, sizes))


# Limits of a batch: an element costs a runner some 10 µs, and is in memory as a whole.
BATCH_ROWS = 1024
BATCH_BYTES = 2**20

# The cell of a row that lacks a column of its batch. It is a singleton, also after pickling.
_ABSENT = Ellipsis

# Limit of the cells of a batch, of which rows that all have columns of their own fill few.
_MAX_CELLS = 2**18


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
        """Creates a batch; None is a missing value of a row.

        Tuples are empty if no row has an image, a cluster or a key of its own. `is_sparse`: whether
        a row can lack a column, in the columns of another batch.
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
    elements: Iterable[RowBatch | Row | Reject | SkippedInput],
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the rows of batches one by one, and other elements as they are."""
    for element in elements:
        if isinstance(element, RowBatch):
            yield from element
        else:
            yield element


class RefBatch(ColumnBatch[ImageRef]):
    """References to rows."""

    row_class, fields = ImageRef, ImageRef._fields

    @property
    def records(self) -> Column:
        """The key of the record of each row."""
        keys, frames = self.column("key"), self.column("frame")
        if not any(frames):
            return keys
        return tuple(f[0] if f else key for f, key in zip(frames, keys, strict=True))

    @property
    def entities(self) -> Column:
        """The unit of each row that must be in one split: its cluster, group or record."""
        return first_of(self.column("cluster"), first_of(self.column("group"), self.records))


class OrderedRefs(ColumnBatch[tuple[bytes, ImageRef]]):
    """References of one shard with their order hashes: [(order, ImageRef)]."""

    fields = ("order", *ImageRef._fields)

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """Returns a batch of references with their order hashes."""
        return rows if isinstance(rows, cls) else super().of((o, *ref) for o, ref in rows)

    @classmethod
    def of_refs(cls, orders: Sequence[bytes], refs: RefBatch) -> Self:
        """Returns references with their order hashes."""
        return cls([orders, *refs.columns])

    @property
    def refs(self) -> RefBatch:
        """The references without their order hashes."""
        return RefBatch([self.column("key"), *self.columns[2:]])

    def __iter__(self) -> Iterator[tuple[bytes, ImageRef]]:
        """Yields the references."""
        return zip(self.columns[0], self.refs, strict=True)
