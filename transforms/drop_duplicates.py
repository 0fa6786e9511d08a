"""Drops rows whose image is that of another row: `--deduplicate content`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.schemas import layout
from recordmill.schemas.base_version import Base
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.duplicates import Conflicts, Duplicate, DuplicateStats
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.assign_shards import Placed
from recordmill.transforms.build_examples import new_executor
from recordmill.transforms.functional.duplicates import (
    label_text,
    merge_duplicate_stats,
    with_dropped_row,
)
from recordmill.transforms.functional.records.index import row_class
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard
from recordmill.transforms.write_lines import WriteLines

_REPEATS = "repeats"
_CONFLICTS = "conflicts"
_BATCH_REFS = 256


class Deduplicated(NamedTuple):
    """What is left, and what is not.

    Attributes:
        placed: the rows that are kept.
        repeats: those that are dropped.
        content: the images of which rows with different labels were dropped.
        files: where the repeats are written.
    """

    placed: PCollection[Placed]
    repeats: PCollection[Duplicate]
    content: PCollection[DuplicateStats]
    files: PCollection[str]


@dataclass(eq=False)
class DropDuplicates(beam.PTransform):
    """Keeps one row of each image: PCollection[Placed] → Deduplicated.

    The row with the smallest key is kept, in whichever split it is. Images are the same if their
    bytes are, as they are found: every one is read for that, once. Those that cannot be read are
    kept, and rejected when they are written.

    Attributes:
        config: whether to drop any.
        directory: the dataset's folder.
        plan: settles the schema, so that labels can be compared.
        base: the dataset whose rows stay, if any: they go before new ones.
        staged: whether images are put into files first. They can be read once all of their part
            is there: so the comparison waits until every row was.
    """

    config: ConvertConfig
    directory: str
    plan: PCollection[Plan]
    base: Base | None = None
    staged: bool = False

    def expand(self, placed: PCollection[Placed]) -> Deduplicated:
        """Adds the reading, and a shuffle of references by digest; if asked for."""
        if self.config.deduplicate == "none":
            nothing = placed.pipeline | "NoDuplicates" >> beam.Create([])
            return Deduplicated(placed, nothing, nothing, nothing)
        awaited = []
        if self.staged:
            awaited = [AsSingleton(placed | "CountPlaced" >> beam.combiners.Count.Globally())]
        dropping = (
            placed
            | "BatchPlaced" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_REFS)
            | "DigestImages"
            >> beam.ParDo(
                _DigestImages(ImageRootGuard(self.config.guard)), *awaited
            ).with_output_types(tuple[bytes, Placed])
            | "GroupByDigest" >> beam.GroupByKey()  # (digest, [Placed])
            | "KeepFirst"
            >> beam.FlatMap(_keep_first, AsSingleton(self.plan), self.base).with_outputs(
                _REPEATS, _CONFLICTS, main="placed"
            )
        )
        kept: PCollection[Placed] = dropping.placed | "Kept" >> beam.Map(_same).with_output_types(
            Placed
        )  # so that the shuffle encodes them by their coder
        content = (
            dropping[_CONFLICTS]
            | "ContentOfDropped" >> beam.Map(_content_of)
            | "CombineDropped" >> beam.CombineGlobally(_merge_contents)
        )
        files = dropping[_REPEATS] | "WriteDropped" >> WriteLines(self.directory, layout.DROPPED)
        return Deduplicated(kept, dropping[_REPEATS], content, files)


def digest_of(ref: ImageRef, guard: ImageRootGuard = UNRESTRICTED) -> bytes:
    """Returns what tells a reference's image from others; what cannot be read is like no other."""
    try:
        if not ref.staged:
            guard.check(ref.uri)
        return hashlib.sha256(read_bytes(ref.uri, ref.start, ref.stop)).digest()
    except RecordError:
        return repr((ref.key, ref.source)).encode("utf-8", "backslashreplace")


class _DigestImages(beam.DoFn):
    def __init__(self, guard: ImageRootGuard) -> None:
        self._digest = partial(digest_of, guard=guard)
        self._shared = Shared()

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)

    def process(self, batch: list[Placed], _rows: int = 0) -> Iterator[tuple[bytes, Placed]]:
        refs = [ref for _, (_, ref) in batch]
        return zip(self._executor.map(self._digest, refs), batch, strict=True)


def _keep_first(
    group: tuple[bytes, Iterable[Placed]], plan: Plan, base: Base | None
) -> Iterator[Placed | TaggedOutput]:
    """Yields the row with the smallest key, and the repeats; one row at a time is in memory."""
    _, rows = group
    first = min(rows, key=lambda row: (_is_new(row, base), _name(row)))
    label = _label(first, plan)
    conflicts = Conflicts()
    kept = False
    for row in rows:
        if not kept and _name(row) == _name(first):  # rows without a table can be the same in all
            kept = True
            yield row
        else:
            repeat = _repeat(row, first, _label(row, plan), label)
            conflicts = with_dropped_row(conflicts, repeat)
            yield TaggedOutput(_REPEATS, repeat)
    if conflicts.images:
        yield TaggedOutput(_CONFLICTS, conflicts)


def _is_new(row: Placed, base: Base | None) -> bool:
    (split, index), _ = row
    return base is None or index >= len(base.shards(split))


def _name(row: Placed) -> tuple[str, str, int]:
    _, (_, ref) = row
    return ref.key, ref.file, ref.line


def _label(row: Placed, plan: Plan) -> str:
    _, (_, ref) = row
    return label_text(row_class(ref.values, plan.resolved))


def _repeat(row: Placed, first: Placed, label: str, kept_label: str) -> Duplicate:
    (split, _), (_, ref) = row
    _, (_, kept) = first
    differs = label != kept_label
    return Duplicate(
        key=ref.key,
        uri=ref.shown_uri,
        source=ref.source,
        split=split,
        kept=kept.key,
        label=label if differs else "",
        kept_label=kept_label if differs else "",
    )


def _same(placed: Placed) -> Placed:
    return placed


def _content_of(conflicts: Conflicts) -> DuplicateStats:
    return DuplicateStats(dropped_conflicts=conflicts)


def _merge_contents(contents: Iterable[DuplicateStats]) -> DuplicateStats:
    return merge_duplicate_stats(contents)
