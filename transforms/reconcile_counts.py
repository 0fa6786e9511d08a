"""Reconciles the row counts of all steps, and writes and sums the rejects."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, PCollection

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, RejectSum
from recordmill.schemas.rejects import Reject
from recordmill.schemas.statistics import Duplicate, DuplicateStats, GroupLeakage, ImageFindings
from recordmill.transforms.elements import AssignedRows, VerificationBatch
from recordmill.transforms.functional.reconcile import StageCounts, reconcile
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.files import make_folders
from recordmill.transforms.workers.progress import counter

# Verifications per element of a side input: Flink keeps all elements in the memory of one task
# manager. Those of 10^5 shards take 44 MB one by one, and 15 MB in batches, which are compressed.
_BATCH_SHARDS = 256


# A name, a split or a kind, and a reason, where the count has one; and a number or sum.
_Count: TypeAlias = tuple[tuple[str, str, str], Any]


def _whole(value: Any, name: str) -> _Count:
    return (name, "", ""), value


def _rows(batch: RowBatch, name: str) -> _Count:
    return (name, "", ""), len(batch)


def _assigned(rows: AssignedRows, name: str) -> _Count:
    (split, _), refs = rows
    return (name, split, ""), len(refs)


def _of_part(counted: tuple[str, Any], name: str) -> _Count:
    part, value = counted
    return (name, part, ""), value


def _one(row: Reject | Duplicate, name: str) -> _Count:
    return (name, row.split, ""), 1


def _one_reject(reject: Reject, name: str) -> _Count:
    counter(f"rejected_{reject.reason.value}").inc()
    return (name, reject.split, reject.reason.value), RejectSum(1, [reject])


# What is counted, and how an element becomes a count.
_COUNTS: Mapping[str, Callable[[Any, str], _Count]] = {
    "rows": _rows,  # batches of rows
    "unread": _one,  # rejects of rows that could not be read
    "skipped": _of_part,  # (kind, SkippedInput)
    "assigned": _assigned,  # rows with their shards
    "rejects": _one_reject,  # all rejects, including those of unread rows
    "tallies": _of_part,  # (split, SplitTally)
    "dropped": _one,  # duplicates
    "content": _whole,  # DuplicateStats
    "group_leaks": _whole,  # GroupLeakage: groups in more than one split
    "findings": _whole,  # ImageFindings: similar images, and images of low quality
}


@dataclass(eq=False)
class ReconcileCounts(beam.PTransform):
    """Reconciles counts: PCollection[ShardVerification] → PCollection[DatasetInfo], one element."""

    plan: PCollection[Plan]  # one element
    counts: Mapping[str, Sequence[PCollection[Any]]]  # the elements of each of `_COUNTS`, in parts
    base: Base | None = None  # the base version; None if there is none

    def expand(self, verifications: PCollection[ShardVerification]) -> PCollection[DatasetInfo]:
        """Adds the counting and the comparison; only sums leave the workers, in one shuffle."""
        counts = tuple(
            part | f"{name}{number}" >> beam.Map(_COUNTS[name], name).with_output_types(_Count)
            for name, parts in self.counts.items()
            for number, part in enumerate(parts, 1)
        )
        sums = counts | "AllCounts" >> beam.Flatten() | "SumCounts" >> beam.CombinePerKey(_sum_of)
        verified = (
            verifications
            | "BatchVerifications" >> beam.BatchElements(_BATCH_SHARDS, _BATCH_SHARDS)
            | "CompressBatch" >> beam.Map(VerificationBatch).with_output_types(VerificationBatch)
        )
        # The plan is one element, so counts are compared once, also without any row.
        return self.plan | "Reconcile" >> beam.Map(
            _reconcile, AsDict(sums), AsIter(verified), self.base
        )


def _sum_of(values: Iterable[Any]) -> Any:
    """Returns the sum of values with one name."""
    found = list(values)
    return sum(found) if isinstance(found[0], int) else type(found[0]).sum_of(found)


def _reconcile(
    plan: Plan,
    sums: Mapping[tuple[str, str, str], Any],
    verified: Iterable[VerificationBatch],
    base: Base | None,
) -> DatasetInfo:
    by_name = defaultdict[str, dict[Any, Any]](dict)
    for (name, part, reason), value in sums.items():
        by_name[name][(part, reason) if name == "rejects" else part] = value
    stages = StageCounts(
        by_name["rows"].get("", 0),
        sum(by_name["unread"].values()),
        *(by_name[name] for name in ("assigned", "rejects", "tallies", "dropped", "skipped")),
    )
    info = reconcile(plan, stages, chain.from_iterable(verified), base)
    return replace(
        info,
        content=by_name["content"].get("", DuplicateStats()),
        group_leaks=by_name["group_leaks"].get("", GroupLeakage()),
        findings=by_name["findings"].get("", ImageFindings()),
    )


# Bytes of a SHA-256 digest.
_DIGEST_BYTES = 32


class JsonLine(Protocol):
    """An element with a JSON form: a reject or a dropped duplicate."""

    def to_json(self) -> str:
        """Returns the element as one line of JSON."""


@dataclass(eq=False)
class WriteLines(beam.PTransform):
    """Writes JSON Lines, if any: PCollection[JsonLine] → PCollection[str], the path of the file."""

    directory: str
    folder: str  # the folder of the file, one of `layout.LINES`

    def expand(self, elements: PCollection[JsonLine]) -> PCollection[str]:
        """Adds the writing, in any order."""
        return (
            elements
            | "ToJson" >> beam.Map(_to_json).with_output_types(tuple[int, bytes])
            | "GroupLines" >> beam.GroupByKey()  # (0, [line])
            | "WriteFile" >> beam.Map(_write_lines, self.directory, self.folder)
        )


def _to_json(element: JsonLine) -> tuple[int, bytes]:
    return 0, element.to_json().encode() + b"\n"


def _write_lines(grouped: tuple[int, Iterable[bytes]], directory: str, folder: str) -> str:
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
