"""Reconciles the row counts of all steps, and writes and sums the rejects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, WrittenShard
from recordmill.schemas.plan import Plan, RejectSum
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import Duplicate, DuplicateStats, GroupLeakage
from recordmill.transforms.functional.duplicates import merge_duplicate_stats
from recordmill.transforms.functional.reconcile import reconcile

_SHOWN_REJECTS = 3


@dataclass(eq=False)
class ReconcileCounts(beam.PTransform):
    """Reconciles counts: PCollection[ShardVerification] → PCollection[DatasetInfo], one element.

    Attributes:
        plan: what the dataset was written by.
        rows: every row that was read.
        unread: rejects of rows that could not be.
        skipped: (what makes no row, how many).
        assigned: (split, rows assigned in it).
        rejects: all rejects, those of unread rows included.
        written: the shards as their writers know them.
        contents: which images are repeated, in one or several parts.
        duplicates: rows that were dropped for their image.
        group_leaks: which groups are in more than one split, once.
    """

    plan: PCollection[Plan]
    rows: PCollection[Row]
    unread: PCollection[Reject]
    skipped: PCollection[tuple[str, int]]
    assigned: PCollection[tuple[str, int]]
    rejects: PCollection[Reject]
    written: PCollection[WrittenShard]
    contents: PCollection[DuplicateStats]
    duplicates: PCollection[Duplicate]
    group_leaks: PCollection[GroupLeakage]

    def expand(self, verifications: PCollection[ShardVerification]) -> PCollection[DatasetInfo]:
        """Adds the counting; only sums leave the workers."""
        rows = self.rows | "CountRows" >> beam.combiners.Count.Globally()
        unread = self.unread | "CountUnread" >> beam.combiners.Count.Globally()
        reasons = (
            self.rejects
            | "ReasonOfReject" >> beam.Map(split_and_reason).with_output_types(tuple[str, str])
            | "CountReasons" >> beam.combiners.Count.PerElement()  # ((split, reason), rows)
        )
        dropped = (
            self.duplicates
            | "SplitOfDuplicate" >> beam.Map(split_of_duplicate).with_output_types(str)
            | "CountDuplicates" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        once: Any = verifications.pipeline | "Once" >> beam.Create([None])
        return once | "Reconcile" >> beam.Map(
            _reconcile,
            AsIter(self.contents),
            AsSingleton(self.group_leaks),
            AsSingleton(self.plan),
            AsSingleton(rows),
            AsSingleton(unread),
            AsDict(self.assigned),
            AsDict(reasons),
            AsIter(self.written),
            AsIter(verifications),
            AsDict(dropped),
            AsDict(self.skipped | "SumSkippedInputs" >> beam.CombinePerKey(sum)),
        )


def split_and_reason(reject: Reject) -> tuple[str, str]:
    """Returns what rejects are counted by."""
    return reject.split, reject.reason.value


def split_of_duplicate(repeat: Duplicate) -> str:
    """Returns the split that a dropped row had been assigned in."""
    return repeat.split


def _reconcile(
    _: None, contents: Iterable[DuplicateStats], group_leaks: GroupLeakage, *counts: Any
) -> DatasetInfo:
    content = merge_duplicate_stats(contents)
    return replace(reconcile(*counts), content=content, group_leaks=group_leaks)


@dataclass(eq=False)
class SumRejects(beam.PTransform):
    """Counts rejects by reason: PCollection[Reject] → PCollection[(reason, RejectSum)]."""

    def expand(self, rejects: PCollection[Reject]) -> PCollection[tuple[str, RejectSum]]:
        """Adds the counting, with the first of each reason."""
        by_reason = rejects | "ByReason" >> beam.Map(_with_reason).with_output_types(
            tuple[str, RejectSum]
        )
        return by_reason | "SumByReason" >> beam.CombinePerKey(_sum)  # (reason, RejectSum)


def _with_reason(reject: Reject) -> tuple[str, RejectSum]:
    return reject.reason.value, RejectSum(1, [reject])


def _sum(found: Iterable[RejectSum]) -> RejectSum:
    total = RejectSum()
    for each in found:
        total = total.add(each, _SHOWN_REJECTS)
    return total


_DIGEST_BYTES = 32


class JsonLine(Protocol):
    """A row that did not become a record: a reject, or a dropped duplicate."""

    def to_json(self) -> str:
        """Returns one line of JSON."""


@dataclass(eq=False)
class WriteLines(beam.PTransform):
    """Writes JSON lines to one file: PCollection[JsonLine] → PCollection[str], its path.

    Attributes:
        directory: the dataset's folder.
        folder: which kind they are: one of `layout.LINES`.
    """

    directory: str
    folder: str

    def expand(self, lines: PCollection[JsonLine]) -> PCollection[str]:
        """Adds the writing, in any order; there is a file even without any line."""
        prefix = layout.join(self.directory, self.folder, self.folder)
        return (
            lines
            | "ToJson" >> beam.Map(_to_json)
            | "WriteText" >> beam.io.WriteToText(prefix, ".jsonl", num_shards=1)
            | "ResetTimestamp" >> beam.Map(with_min_timestamp)
        )


def _to_json(lines: JsonLine) -> str:
    return lines.to_json()


def with_min_timestamp(path: str) -> TimestampedValue:
    """Returns a file's name with a time at which every engine passes it on.

    Beam's writers give it the end of time, and so late Prism leaves it lying.
    """
    return TimestampedValue(path, MIN_TIMESTAMP)


def digest_of_lines(lines: Iterable[bytes]) -> str:
    r"""Returns a hex digest of some lines, which a line more, less, twice or changed changes.

    It is the sum of the lines' own digests, so that memory does not grow with them. It is no
    defence against one who can choose all lines freely; nor is a digest that can be replaced.

    Args:
        lines: each with its line break, so that one that is lacking is seen.

    >>> digest_of_lines([b"a\n", b"b\n"]) == digest_of_lines([b"b\n", b"a\n"])
    True
    >>> digest_of_lines([b"a\n"]) == digest_of_lines([b"a\n", b"a\n"])
    False
    """
    total = sum(int.from_bytes(hashlib.sha256(line).digest(), "big") for line in lines)
    return f"{total % 2 ** (8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"
