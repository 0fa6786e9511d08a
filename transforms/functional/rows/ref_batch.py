"""References as columns, from the row to its example: fields that all rows share are kept once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.rows.column_batch import Column, ColumnBatch, first_of

if TYPE_CHECKING:
    from typing_extensions import Self


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
        """Returns references with their order hashes.

        `orders` is the order hash of each reference.
        """
        return cls([orders, *refs.columns])

    @property
    def refs(self) -> RefBatch:
        """The references without their order hashes."""
        return RefBatch([self.column("key"), *self.columns[2:]])

    def __iter__(self) -> Iterator[tuple[bytes, ImageRef]]:
        """Yields the references."""
        return zip(self.columns[0], self.refs, strict=True)
