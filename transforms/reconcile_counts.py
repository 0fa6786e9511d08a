"""Reconciles the row counts of all steps, and writes and sums the rejects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, RejectSum
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import (
    Duplicate,
    DuplicateStats,
    GroupLeakage,
    ImageFindings,
    SplitTally,
)
from recordmill.transforms.elements import VerificationBatch
from recordmill.transforms.functional.reconcile import reconcile
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.files import make_folders
from recordmill.transforms.workers.progress import counter

# Verifications per element of a side input: Flink keeps all elements in the memory of one task
# manager. Those of 10^5 shards take 44 MB one by one, and 15 MB in batches, which are compressed.
_BATCH_SHARDS = 256


@dataclass(eq=False)
class ReconcileCounts(beam.PTransform):
    """Reconciles counts: PCollection[ShardVerification] → PCollection[DatasetInfo], one element."""

    plan: PCollection[Plan]
    rows: PCollection[int]
    unread: PCollection[Reject]  # rejects of rows that could not be read
    skipped: PCollection[tuple[str, SkippedInput]]
    # (split, number of rows assigned to it); a split can occur several times.
    assigned: PCollection[tuple[str, int]]
    rejects: PCollection[Reject]  # all rejects, including those of unread rows
    tallies: PCollection[tuple[str, SplitTally]]
    contents: PCollection[DuplicateStats]  # duplicate statistics, in one or several parts
    duplicates: PCollection[Duplicate]
    # Groups in more than one split, one element; None if no group can span splits.
    group_leaks: PCollection[GroupLeakage] | None
    # Similar images, and images of low quality; a single element.
    findings: PCollection[ImageFindings]
    base: Base | None = None  # the base version; None if there is none

    def expand(self, verifications: PCollection[ShardVerification]) -> PCollection[DatasetInfo]:
        """Adds the counting and the comparison; only sums leave the workers."""
        rows = self.rows | "CountRows" >> beam.CombineGlobally(sum).without_defaults()
        unread = self.unread | "CountUnread" >> beam.combiners.Count.Globally().without_defaults()
        reasons = (
            self.rejects
            | "ReasonOfReject"
            >> beam.Map(_counted_reject).with_output_types(tuple[tuple[str, str], RejectSum])
            | "CountReasons" >> beam.CombinePerKey(RejectSum.sum_of)  # ((split, reason), RejectSum)
        )
        dropped = (
            self.duplicates
            | "SplitOfDuplicate" >> beam.Map(_split_of_duplicate).with_output_types(str)
            | "CountDuplicates" >> beam.combiners.Count.PerElement()  # (split, rows)
        )
        verified = (
            verifications
            | "BatchVerifications" >> beam.BatchElements(_BATCH_SHARDS, _BATCH_SHARDS)
            | "CompressBatch" >> beam.Map(VerificationBatch).with_output_types(VerificationBatch)
        )
        # One element, so that counts are compared once, also without any row.
        once: Any = verifications.pipeline | "Once" >> beam.Create([None])
        return once | "Reconcile" >> beam.Map(
            _reconcile,
            AsIter(self.contents),
            AsSingleton(self.group_leaks) if self.group_leaks else GroupLeakage(),
            AsSingleton(self.findings),
            AsIter(verified),
            AsSingleton(self.plan),
            AsSingleton(rows, 0),
            AsSingleton(unread, 0),
            AsDict(self.assigned | "RowsBySplit" >> beam.CombinePerKey(sum)),
            AsDict(reasons),
            AsDict(self.tallies),
            AsDict(dropped),
            AsDict(self.skipped | "SumSkippedInputs" >> beam.CombinePerKey(SkippedInput.sum_of)),
            base=self.base,
        )


def _split_and_reason(reject: Reject) -> tuple[str, str]:
    """Returns the key by which rejects are counted: (split, reason)."""
    counter(f"rejected_{reject.reason.value}").inc()
    return reject.split, reject.reason.value


def _counted_reject(reject: Reject) -> tuple[tuple[str, str], RejectSum]:
    return _split_and_reason(reject), RejectSum(1, [reject])


def _split_of_duplicate(duplicate: Duplicate) -> str:
    """Returns the split to which a dropped row had been assigned."""
    return duplicate.split


def _reconcile(
    _: None,
    contents: Iterable[DuplicateStats],
    group_leaks: GroupLeakage,
    findings: ImageFindings,
    verified: Iterable[VerificationBatch],
    *counts: Any,
    base: Base | None,
) -> DatasetInfo:
    content = DuplicateStats.sum_of(contents)
    found = reconcile(*counts, verified=chain.from_iterable(verified), base=base)
    return replace(found, content=content, group_leaks=group_leaks, findings=findings)


@dataclass(eq=False)
class SumRejects(beam.PTransform):
    """Counts rejects by reason: PCollection[Reject] → PCollection[(reason, RejectSum)]."""

    def expand(self, rejects: PCollection[Reject]) -> PCollection[tuple[str, RejectSum]]:
        """Adds the counting, with a few examples of each reason."""
        by_reason = rejects | "ByReason" >> beam.Map(_with_reason).with_output_types(
            tuple[str, RejectSum]
        )
        return by_reason | "SumByReason" >> beam.CombinePerKey(
            RejectSum.sum_of
        )  # (reason, RejectSum)


def _with_reason(reject: Reject) -> tuple[str, RejectSum]:
    return reject.reason.value, RejectSum(1, [reject])


# Bytes of a SHA-256 digest.
_DIGEST_BYTES = 32


class JsonLine(Protocol):
    """An element with a JSON form: a reject or a dropped duplicate."""

    def to_json(self) -> str:
        """Returns the element as one line of JSON."""


@dataclass(eq=False)
class WriteLines(beam.PTransform):
    """Writes elements to a JSON Lines file: PCollection[JsonLine] → PCollection[str], its path."""

    directory: str
    folder: str  # the folder of the file, one of `layout.LINES`

    def expand(self, lines: PCollection[JsonLine]) -> PCollection[str]:
        """Adds the writing, in any order; without elements, the file is empty."""
        nothing = lines.pipeline | "NoLine" >> beam.Create([b""])
        return (
            (lines | "ToJson" >> beam.Map(_to_json).with_output_types(bytes), nothing)
            | "WithNoLine" >> beam.Flatten()
            | "ToOneFile" >> beam.WithKeys(0)
            | "GroupLines" >> beam.GroupByKey()  # (0, [line])
            | "WriteFile" >> beam.Map(_write_lines, self.directory, self.folder)
        )


def _to_json(element: JsonLine) -> bytes:
    return element.to_json().encode() + b"\n"


def _write_lines(grouped: tuple[int, Iterable[bytes]], directory: str, folder: str) -> str:
    """Writes the one file of lines and returns its path."""
    name = layout.lines_name(folder)
    make_folders(directory, layout.STAGING, folder)
    draft = Draft(directory, name)
    with draft.open() as stream:
        for line in grouped[1]:
            stream.write(line)
    draft.commit(replaced={}, checked=True)  # a retried attempt may have another order of lines
    return layout.join(directory, name)


def digest_of_lines(lines: Iterable[bytes]) -> str:
    r"""Returns an order-independent hex digest of lines: the sum of their SHA-256 modulo 2^256.

    It changes if a line is added, removed, duplicated or edited, and takes constant memory. It
    detects damage, not forgery: someone who can edit the lines can also replace the digest.

    `lines` are the lines with their line breaks, so that a missing last one is detected.

    >>> digest_of_lines([b"a\n", b"b\n"]) == digest_of_lines([b"b\n", b"a\n"])
    True
    >>> digest_of_lines([b"a\n"]) == digest_of_lines([b"a\n", b"a\n"])
    False
    """
    total = sum(int.from_bytes(hashlib.sha256(line).digest(), "big") for line in lines)
    return f"{total % 2 ** (8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"
