"""What is known of a dataset after it was written: its shards, their proof, and the books."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.schemas.duplicates import NO_CONTENT, Content, GroupLeaks
from recordmill.schemas.plan import Plan
from recordmill.schemas.tallies import ImageTally, Timeline

ClassCounts = Mapping[str, Mapping[int, int]]
"""Feature to class id to the number of times that it occurs."""


@dataclass(frozen=True)
class ShardInfo:
    """One shard, as its writer knows it.

    Attributes:
        split: which split it belongs to.
        index: its number within the split, from 0.
        records: how many it holds.
        payload: bytes of all serialized examples, without framing.
        crc32c: of the uncompressed stream of framed records.
        index_crc32c: of the file that indexes its records.
        classes: how often each class occurs.
        images: how many images got which treatment.
        shapes: what the images look like.
        timeline: how many records were written when.
        reused: whether it was finished by an earlier run, and only taken from there.
        linked: whether it is a shard of the base, and was only given another name.
        fingerprint: what decided its bytes; "" if that is not known.
        frames: of all its sequences; None if each record is made from one row.
    """

    split: str
    index: int
    records: int
    payload: int
    crc32c: int
    index_crc32c: int
    classes: ClassCounts
    images: Mapping[str, int] = field(default_factory=dict)
    shapes: ImageTally = field(default_factory=ImageTally)
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    reused: bool = field(default=False, compare=False)
    linked: bool = field(default=False, compare=False)
    fingerprint: str = field(default="", compare=False)
    frames: int | None = None

    @property
    def rows(self) -> int:
        """How many rows its records were made from."""
        return self.records if self.frames is None else self.frames


@dataclass(frozen=True)
class Problem:
    """Something in a published dataset that is not as it should be.

    Attributes:
        file: where, below the dataset's folder.
        what: got and expected, in words.
        record: the number of the record within its shard from 0, if one is to blame.
        offset: the byte at which it begins in the uncompressed shard.
    """

    file: str
    what: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.record is None else f" record {self.record} at byte {self.offset}:"
        file = self.file.replace("\n", "\\n")  # a file's name does not end the line of a message
        return f"{file}:{place} {self.what}"


@dataclass(frozen=True)
class ShardAudit:
    """One shard, as TensorFlow re-read it.

    Attributes:
        split: which split it belongs to.
        index: its number within the split.
        file: its name below the dataset's folder.
        records: how many were parsed against the schema.
        payload: bytes of all serialized examples, without framing.
        size: bytes of the file.
        sha256: hex digest of the file.
        crc32c: of the uncompressed stream of framed records.
        index_file: the file that indexes its records, below the dataset's folder.
        index_sha256: hex digest of that file.
        index_crc32c: its checksum.
        classes: how often each class occurs.
        problems: what is wrong with it.
        frames: of all its sequences; None if each record is made from one row.
    """

    split: str
    index: int
    file: str
    records: int
    payload: int
    size: int
    sha256: str
    crc32c: int
    index_file: str
    index_sha256: str
    index_crc32c: int
    classes: ClassCounts
    problems: tuple[Problem, ...] = ()
    frames: int | None = None

    @property
    def rows(self) -> int:
        """How many rows its records hold."""
        return self.records if self.frames is None else self.frames


@dataclass(frozen=True)
class SplitBooks:
    """Where the rows of one split went.

    Attributes:
        rows: placed in the split.
        written: records, as counted by re-reading them.
        rejected: did not.
        duplicates: were dropped for repeating another row's content.
        frames: became frames of these records, likewise; None if each record is one row.
    """

    rows: int = 0
    written: int = 0
    rejected: int = 0
    duplicates: int = 0
    frames: int | None = None

    @property
    def converted(self) -> int:
        """Rows that the records were made from."""
        return self.written if self.frames is None else self.frames

    @property
    def balanced(self) -> bool:
        """Whether every row is accounted for."""
        return self.rows == self.converted + self.rejected + self.duplicates


@dataclass(frozen=True)
class Books:
    """Where all rows went: the proof that nothing was lost.

    Attributes:
        rows_read: from all tables.
        unplaced: rejected before they had a split.
        splits: the rest, by split.
        reasons: reason to number of rejects, over all.
    """

    rows_read: int
    unplaced: int
    splits: Mapping[str, SplitBooks]
    reasons: Mapping[str, int]

    @property
    def written(self) -> int:
        """Records in the dataset."""
        return sum(split.written for split in self.splits.values())

    @property
    def frames(self) -> int | None:
        """Rows that became frames of these records; None if each record is one row."""
        counts = [split.frames for split in self.splits.values() if split.frames is not None]
        return sum(counts) if counts else None

    @property
    def rejected(self) -> int:
        """Rows that are in rejects/."""
        return self.unplaced + sum(split.rejected for split in self.splits.values())

    @property
    def balanced(self) -> bool:
        """Whether rows read = written + rejected + dropped, in all and in each split."""
        placed = sum(split.rows for split in self.splits.values())
        each = all(split.balanced for split in self.splits.values())
        return (
            each
            and self.rows_read == placed + self.unplaced
            and self.rejected == sum(self.reasons.values())
        )


@dataclass(frozen=True)
class DatasetInfo:
    """A written dataset with its proof, ready to be published or refused.

    Attributes:
        plan: what it was written by.
        books: where the rows went.
        shards: one audit a shard, in order.
        images: how many images got which treatment.
        problems: why it must not be published, if anything speaks against it.
        content: which images are repeated.
        group_leaks: which groups are in more than one split.
        asides: what the sources hold that makes no row, to how many.
        shapes: what the images look like.
        timeline: how many records were written when.
        reused: how many of the shards were finished by an earlier run.
        linked: how many of them are the base's, under another name.
        treatments: split and number of a shard to how many of its images got which treatment.
        fingerprints: shard file to what decided its bytes, where that is known.
    """

    plan: Plan
    books: Books
    shards: tuple[ShardAudit, ...]
    images: Mapping[str, int]
    problems: tuple[Problem, ...]
    content: Content = NO_CONTENT
    group_leaks: GroupLeaks = field(default_factory=GroupLeaks)
    asides: Mapping[str, int] = field(default_factory=dict)
    shapes: ImageTally = field(default_factory=ImageTally)
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    reused: int = 0
    linked: int = 0
    treatments: Mapping[tuple[str, int], Mapping[str, int]] = field(
        default_factory=dict, compare=False
    )
    fingerprints: Mapping[str, str] = field(default_factory=dict, compare=False)
