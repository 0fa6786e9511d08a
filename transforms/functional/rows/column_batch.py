"""Rows as columns: fields are read, selected and encoded in one step for all rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, overload

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
    """Rows that are named tuples of one class.

    `columns` are the values of each field; of the first, one per row.
    """

    row_class: ClassVar[type[tuple[Any, ...]]]
    fields: ClassVar[tuple[str, ...]]

    def __init__(self, columns: Iterable[Iterable[Any]]) -> None:
        """Creates a batch.

        `columns` are the values of each field; of the first, one per row.
        """
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
        return self._like(pick(c) if len(c) == number else c for c in self.columns)

    def _like(self, columns: Iterable[Column]) -> Self:
        return type(self)(columns)

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
