"""Row counts: every row read is converted, rejected or dropped, in total and in each split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from recordmill.schemas.document import Document, unwritten_if_empty

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
        """Number of rows from which the records were built."""
        return self.records if self.frames is None else self.frames


class Counted(Document, Converted):
    """Counts of records in manifest.json."""

    # Number of frames, if records are sequences.
    frames: Count | None = Field(None, exclude_if=lambda number: number is None)


class SplitCounts(Counted):
    """Row counts of a split."""

    rows: Count
    records: Count
    rejected: Count  # number of rows rejected after they were assigned
    duplicates: Count  # number of rows dropped, because another row has the same image
    # Number of rows that are not written, because the base version has a record with their key.
    unchanged: Count = unwritten_if_empty(0)

    @property
    def match(self) -> bool:
        """Whether every row is accounted for."""
        done = self.rejected + self.duplicates + self.unchanged
        return self.rows == self.converted + done


class RowCounts(SplitCounts):
    """Row counts of a dataset."""

    unplaced: Count  # number of rows rejected before they were assigned; `rejected` includes them
    reasons: dict[str, Count]
    # Datasets of earlier versions have this name; in the code, these are skipped inputs.
    asides: dict[str, Count] = Field(default_factory=dict)  # number of skipped inputs by kind

    @classmethod
    def of(
        cls,
        rows: int,
        splits: Mapping[str, SplitCounts],
        unplaced: int = 0,
        reasons: Mapping[str, int] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> RowCounts:
        """Returns the counts of a dataset; `unplaced` rows were rejected before assignment."""
        return cls(
            rows=rows,
            unplaced=unplaced,
            reasons=dict(sorted((reasons or {}).items())),
            asides=dict(sorted((skipped or {}).items())),
            **_sums(splits, unplaced),
        )


def mismatches(total: RowCounts, splits: Mapping[str, SplitCounts]) -> Iterator[str]:
    """Yields a message for each mismatch of the row counts."""
    for name, split in splits.items():
        if not split.match:
            same = f", {split.unchanged} unchanged" if split.unchanged else ""
            yield (
                f"split {name!r}: {split.rows} rows assigned, {split.converted} converted, "
                f"{split.rejected} rejected, {split.duplicates} dropped{same}"
            )
    assigned, with_reason = sum(s.rows for s in splits.values()), sum(total.reasons.values())
    if total.rows != assigned + total.unplaced:
        before = f"{total.unplaced} rejected before"
        yield f"{total.rows} rows read, {assigned} assigned to splits, {before}"
    if total.rejected != with_reason:
        yield f"{total.rejected} rows rejected, {with_reason} of them with a reason"
    for what, count in _sums(splits, total.unplaced).items():
        if getattr(total, what) != count:
            yield f"{what}: {getattr(total, what)} in all, {count} in the splits"


def _sums(splits: Mapping[str, SplitCounts], unplaced: int) -> dict[str, int | None]:
    counts = splits.values()
    frames = [split.frames for split in counts if split.frames is not None]
    return {
        "records": sum(split.records for split in counts),
        "rejected": unplaced + sum(split.rejected for split in counts),
        "duplicates": sum(split.duplicates for split in counts),
        "unchanged": sum(split.unchanged for split in counts),
        "frames": sum(frames) if frames else None,
    }


@dataclass(frozen=True, kw_only=True)
class ShardCounts(Converted):
    """Counts of a shard; in a forecast, under the assumption that no image is rejected."""

    split: str
    index: int  # its number within the split, from 0
    records: int
    classes: Mapping[str, Mapping[int, int]]  # number of occurrences by class id, by feature
    # Number of frames in all sequences; None if records are not sequences.
    frames: int | None = None
