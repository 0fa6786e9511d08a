"""Row counts: every row read is converted, rejected or dropped, in all and in each split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Records(Protocol):
    @property
    def records(self) -> int: ...
    @property
    def frames(self) -> int | None: ...


class Converted:
    """Counts of records, each made from one row or, if `frames` is not None, from several."""

    @property
    def converted(self: _Records) -> int:
        """Rows that the records were made from."""
        return self.records if self.frames is None else self.frames


class Counted(BaseModel, Converted):
    """Records in manifest.json.

    Attributes:
        frames: of all of them, if they are sequences; otherwise it is not written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    frames: Count | None = None

    @model_serializer(mode="wrap")
    def _without_no_frames(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.frames is None:
            document.pop("frames", None)
        return document


class SplitCounts(Counted):
    """Where the rows of one split went.

    Attributes:
        rows: placed in the split.
        records: written, as counted by re-reading them.
        rejected: rows that did not become records.
        duplicates: rows that were dropped, since another row has the same image.
    """

    rows: Count
    records: Count
    rejected: Count
    duplicates: Count

    @property
    def match(self) -> bool:
        """Whether every row is accounted for."""
        return self.rows == self.converted + self.rejected + self.duplicates


class RowCounts(SplitCounts):
    """Where all rows went.

    Attributes:
        rows: read from all tables.
        unplaced: rows that were rejected before they had a split; they are in `rejected`, too.
        reasons: rejection reason to number of rejects.
        asides: what the sources hold that is not a row, to how many.
    """

    unplaced: Count
    reasons: dict[str, Count]
    asides: dict[str, Count] = Field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rows: int,
        splits: Mapping[str, SplitCounts],
        unplaced: int = 0,
        reasons: Mapping[str, int] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> RowCounts:
        """Returns the counts of all rows.

        Args:
            rows: how many were read.
            splits: the counts of those that were placed, by split.
            unplaced: how many were rejected before.
            reasons: rejection reason to number of rejects.
            skipped: what the sources hold that is not a row, to how many.
        """
        return cls(
            rows=rows,
            unplaced=unplaced,
            reasons=dict(sorted((reasons or {}).items())),
            asides=dict(sorted((skipped or {}).items())),
            **_sums(splits, unplaced),
        )


def mismatches(total: RowCounts, splits: Mapping[str, SplitCounts]) -> Iterator[str]:
    """Yields the row counts that do not match, in words.

    Args:
        total: the counts of all rows.
        splits: the counts of each split.
    """
    for name, split in splits.items():
        if not split.match:
            yield (
                f"split {name!r}: {split.rows} rows placed, {split.converted} converted, "
                f"{split.rejected} rejected, {split.duplicates} dropped"
            )
    placed, with_reason = sum(s.rows for s in splits.values()), sum(total.reasons.values())
    if total.rows != placed + total.unplaced:
        before = f"{total.unplaced} rejected before"
        yield f"{total.rows} rows read, {placed} placed in splits, {before}"
    if total.rejected != with_reason:
        yield f"{total.rejected} rows rejected, {with_reason} of them with a reason"
    for what, count in _sums(splits, total.unplaced).items():
        if getattr(total, what) != count:
            yield f"{what}: {getattr(total, what)} in all, {count} in the splits"


def _sums(splits: Mapping[str, SplitCounts], unplaced: int) -> dict[str, int | None]:
    """Returns the counts that are sums over the splits, by name."""
    counts = splits.values()
    frames = [split.frames for split in counts if split.frames is not None]
    return {
        "records": sum(split.records for split in counts),
        "rejected": unplaced + sum(split.rejected for split in counts),
        "duplicates": sum(split.duplicates for split in counts),
        "frames": sum(frames) if frames else None,
    }


@dataclass(frozen=True, kw_only=True)
class ShardCounts(Converted):
    """What one shard holds, or would hold if all images are good.

    Attributes:
        split: which split it belongs to.
        index: its number within the split, from 0.
        records: how many it holds.
        classes: feature to class id to the number of times that it occurs.
        frames: of all its sequences; None if each record is made from one row.
    """

    split: str
    index: int
    records: int
    classes: Mapping[str, Mapping[int, int]]
    frames: int | None = None
