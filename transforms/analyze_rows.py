"""Analyzes all rows and plans the dataset."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.sums import Summed
from recordmill.transforms.elements import displayed
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.rows import placement
from recordmill.transforms.functional.rows.analysis import (
    UNASSIGNED,
    Analysis,
    Analyzer,
    build_plan,
    check_shard_counts,
    check_strata,
    needs_sizes,
    row_positions,
    sampled_rows,
    unassigned_rows,
)
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.strata import (
    GROUP_BITS,
    Group,
    LabelSet,
    Strata,
    allocate_groups,
    allocate_rows,
    distributes_groups,
    group_bits,
    with_class_ids,
)
from recordmill.transforms.select_ranks import End, Hashes, SelectRanks
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.workers.progress import advance, set_total


@dataclass(eq=False)
class AnalyzeRows(beam.PTransform):
    """Analyzes every row before any is assigned: PCollection[RowBatch] → PCollection[Plan]."""

    analyzer: Analyzer  # the schema, column mapping and options
    # The rows with those outside of the sample, which determine columns, classes and splits; None
    # if all rows are converted.
    all_rows: PCollection[RowBatch] | None = None

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(
            self.analyzer.config,
            "seed",
            "splits",
            "split_method",
            "num_shards",
            "shard_size",
            "records_per_shard",
        )

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[Plan]:
        """Adds the analysis; workers exchange sums, and hashes for `records_per_shard`."""
        config, analyze = self.analyzer.config, AnalyzeFn(self.analyzer)
        analysis = rows | "Analyze" >> beam.CombineGlobally(analyze).without_defaults()
        ranges: PCollection[SplitRanges] | None = None
        starts, whole = (), AsSingleton(analysis, Analysis())
        if self.all_rows is not None:
            found = self.all_rows | "AnalyzeAll" >> beam.CombineGlobally(analyze).without_defaults()
            whole = AsSingleton(found, Analysis())
        if config.split_method != "hash":
            # A sample has the splits of all rows; what --per_class leaves has its own.
            of_splits = rows if config.per_class is not None else self.all_rows or rows
            ranges = of_splits | "FindSplits" >> FindSplits(self.analyzer)
        if config.records_per_shard is not None:
            finding = FindShardStarts(self.analyzer, config.records_per_shard, ranges)
            starts = AsIter(rows | "FindShardStarts" >> finding)
        return (
            rows.pipeline
            | "Once" >> beam.Impulse()
            | "Plan"
            >> beam.Map(
                _make_plan,
                self.analyzer,
                AsSingleton(analysis, Analysis()),
                whole,
                starts,
                AsIter(ranges) if ranges else (),
            )
        )


@dataclass(eq=False)
class FindShardStarts(beam.PTransform):
    """Finds where shards start: PCollection[RowBatch] → PCollection[{split: positions}], of one."""

    analyzer: Analyzer  # the schema, column mapping and options
    records: int  # the number of records in each shard except the last of a split
    ranges: PCollection[SplitRanges] | None  # the ranges of the splits, if they depend on all rows

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[dict[str, list[End]]]:
        """Adds a shuffle of 8 bytes per row."""
        ranges = AsIter(self.ranges) if self.ranges else ()
        hashing = beam.Map(_hashes_by_split, ranges, self.analyzer)
        return (
            rows
            # What decides the split of a row is small: it waits for the ranges in place of the row.
            | "OrderOfRow" >> beam.Map(_order_of_rows, self.analyzer)
            | "HashesBySplit" >> hashing.with_output_types(Hashes)
            | "SelectRanks" >> SelectRanks(partial(_ranks_of_starts, records=self.records))
        )


@dataclass(eq=False)
class AnalyzeFn(beam.CombineFn):
    """Combines rows into one analysis."""

    analyzer: Analyzer  # the schema, column mapping and options

    def create_accumulator(self) -> Analysis:
        """Returns an empty analysis."""
        return Analysis()

    def add_input(self, analysis: Analysis, rows: RowBatch) -> Analysis:
        """Returns an analysis, which may be changed in place, with more rows."""
        analysis.add(rows, self.analyzer, base_shard_lookup(self.analyzer.base))
        analysis.check_strata(self.analyzer)
        advance("analyzed", len(rows))
        return analysis

    def merge_accumulators(self, analyses: Iterable[Analysis]) -> Analysis:
        """Returns the sum of the analyses."""
        total = Analysis.sum_of(analyses)
        total.check_strata(self.analyzer)
        return total

    def extract_output(self, analysis: Analysis) -> Analysis:
        """Returns the analysis."""
        return analysis


def _make_plan(
    _: bytes,
    analyzer: Analyzer,
    analysis: Analysis,
    whole: Analysis,
    starts: Iterable[Mapping[str, Iterable[End]]] = (),
    ranges: Iterable[SplitRanges] = (),
) -> Plan:
    """Returns the plan; requests the file sizes of sampled images where the plan depends on them.

    `starts` and `ranges` have one element if shards have a number of records, and if the splits
    depend on all rows. `whole` is the analysis with the rows outside of the sample.
    """
    set_total(analysis.rows)
    rows = sampled_rows(analysis) if needs_sizes(analysis, analyzer.config) else ()
    uris = [uri for _, uri, _ in rows if uri]
    sizes = zip(uris, map_in_threads(file_size, uris), strict=True)
    # A missing file has no size; its row is rejected when its shard is written.
    known = {uri: size for uri, size in sizes if size is not None}
    analysis = analysis.part_of(whole)
    of_splits = {
        split: tuple(start.position for start in found)
        for split, found in next(iter(starts), {}).items()
    }
    plan = build_plan(analysis, analyzer, known, of_splits, next(iter(ranges), None))
    return with_class_ids(plan)


class RowOrder(NamedTuple):
    """What decides the split and shard of a row."""

    split: str  # its split; `UNASSIGNED` if it depends on all rows
    order: bytes  # the first bytes of its order hash
    entity: str = ""  # the unit that must be in one split, of an unassigned row
    stratum: str = ""


def _order_of_rows(rows: RowBatch, analyzer: Analyzer) -> list[RowOrder]:
    """Returns the order of each row that has a key and is not in a base shard."""
    find, orders = base_shard_lookup(analyzer.base), list[RowOrder]()
    strata = Strata(analyzer)
    for split, order, row, entity in row_positions(rows, analyzer, find):
        decided = (entity, strata.of(row)) if split == UNASSIGNED else ()
        orders.append(RowOrder(split, order[: placement.POSITION_BYTES], *decided))
    return orders


def _hashes_by_split(
    rows: Iterable[RowOrder], ranges: Iterable[SplitRanges], analyzer: Analyzer
) -> Hashes:
    """Returns the first bytes of the order hash of each row, by split."""
    known, found = next(iter(ranges), None), defaultdict[str, list[bytes]](list)
    for row in rows:
        split = row.split
        if known and split == UNASSIGNED:
            split = placement.split_of(row.entity, known, analyzer.config.seed, row.stratum)
        found[split].append(row.order)
    return {split: b"".join(orders) for split, orders in found.items()}


def _ranks_of_starts(records_by_split: Mapping[str, int], records: int) -> dict[str, range]:
    """Returns the ranks at which the shards of each split start, except the first."""
    check_shard_counts(records_by_split, records)
    return {split: range(records, count, records) for split, count in records_by_split.items()}


_BASE = "base"


@dataclass(eq=False)
class FindSplits(beam.PTransform):
    """Finds where splits end: PCollection[RowBatch] → PCollection[SplitRanges], one element.

    The strata of its result are labels as text.
    """

    # The schema, column mapping and options; with a split method other than hash.
    analyzer: Analyzer

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[SplitRanges]:
        """Adds a shuffle of hashes, or of the labels of groups."""
        if distributes_groups(self.analyzer.config, self.analyzer.schema):
            return rows | FindGroupSplits(self.analyzer)
        hashing = beam.FlatMap(_hashes_of_rows, self.analyzer).with_output_types(Hashes)
        found = rows | "StrataOfRows" >> hashing.with_outputs(_BASE, main="new")
        in_base = found[_BASE] | "CountInBase" >> beam.combiners.Count.PerElement()
        choose = partial(_allocate, analyzer=self.analyzer)
        ends = found.new | "SelectRanks" >> SelectRanks(choose, AsDict(in_base))
        return ends | "Ranges" >> beam.Map(_ranges_of, self.analyzer)


def _hashes_of_rows(rows: RowBatch, analyzer: Analyzer) -> Iterator[Hashes | TaggedOutput]:
    """Yields {stratum: positions} of new rows, and (stratum, split) of each that is in the base.

    Rows that state their split are left out.
    """
    find, strata = base_shard_lookup(analyzer.base), Strata(analyzer)
    # A row is not an element of its own, which would cost a runner ten times as much as its hash.
    found = defaultdict[str, bytearray](bytearray)
    for row, entity, base_split in unassigned_rows(rows, analyzer, find):
        stratum = strata.of(row)
        if base_split:
            yield TaggedOutput(_BASE, (stratum, base_split))
            continue
        position = placement.split_position(entity, analyzer.config.seed)
        found[stratum] += position.to_bytes(placement.POSITION_BYTES, "big")
    yield {stratum: bytes(hashes) for stratum, hashes in found.items()}


def _allocate(
    counts: Mapping[str, int], in_base: Mapping[tuple[str, str], int], analyzer: Analyzer
) -> dict[str, list[int]]:
    """Returns the ranks at which the splits of each stratum end."""
    check_strata(len(counts))
    names, weights = _whole_weights(analyzer)
    fixed: dict[str, list[int]] = {}
    for (stratum, split), number in in_base.items():
        if split in names:
            fixed.setdefault(stratum, [0] * len(names))[names.index(split)] = number
    sets = _label_sets([*counts, *fixed])
    allocated = allocate_rows(
        {sets[stratum]: rows for stratum, rows in counts.items()},
        weights,
        {sets[stratum]: numbers for stratum, numbers in fixed.items()},
    )
    return {stratum: list(accumulate(allocated[sets[stratum]])) for stratum in counts}


def _whole_weights(analyzer: Analyzer) -> tuple[tuple[str, ...], list[int]]:
    """Returns the names of the splits, and their weights as whole numbers."""
    weights = {name: Fraction(weight) for name, weight in analyzer.config.weights.items() if weight}
    least = min(weights.values())
    scaled = [weight / least for weight in weights.values()]
    common = math.lcm(*(weight.denominator for weight in scaled))
    return tuple(weights), [int(weight * common) for weight in scaled]


def _label_sets(strata: Iterable[str]) -> dict[str, LabelSet]:
    """Returns a set of numbers for each stratum, in which a number stands for a label."""
    labels = {
        stratum: [tuple(found) for found in json.loads(stratum or "[]")] for stratum in strata
    }
    distinct = {label for found in labels.values() for label in found}
    numbers = {label: i for i, label in enumerate(sorted(distinct, key=repr))}
    return {
        stratum: tuple(sorted(numbers[label] for label in found))
        for stratum, found in labels.items()
    }


def _ranges_of(ends: Mapping[str, Sequence[End]], analyzer: Analyzer) -> SplitRanges:
    """Returns the ranges of the splits for each stratum, and for rows of other strata."""
    names, weights = _whole_weights(analyzer)
    bounds = {stratum: tuple(end.position for end in found) for stratum, found in ends.items()}
    if bounds.keys() == {""}:  # exact: rows have no stratum
        return SplitRanges(names, bounds[""])
    # The number of rows in the splits up to each, in all strata.
    totals = [sum(end.rank for end in found) for found in zip(*ends.values(), strict=True)]
    return SplitRanges(names, _bounds_of_counts(totals or [*accumulate(weights)]), bounds)


def _bounds_of_counts(ends: Sequence[int]) -> tuple[int, ...]:
    """Returns the ends of ranges of hashes that are proportional to numbers of rows up to them.

    >>> _bounds_of_counts([1, 1, 2]) == (2**63, 2**63, 2**64)
    True
    """
    total = max(ends, default=0) or 1
    return (*(end * placement.END // total for end in ends[:-1]), placement.END)


@dataclass(eq=False)
class FindGroupSplits(beam.PTransform):
    """Finds the split of each group: PCollection[RowBatch] → PCollection[SplitRanges], of one."""

    analyzer: Analyzer  # the schema, column mapping and options

    def expand(self, rows: PCollection[RowBatch]) -> PCollection[SplitRanges]:
        """Adds a shuffle of the labels of each group."""
        groups = (
            rows
            | "GroupsOfRows"
            >> beam.FlatMap(_groups_of_rows, self.analyzer).with_output_types(
                tuple[bytes, GroupRows]
            )
            | "RowsOfGroup" >> beam.CombinePerKey(_merged_rows)  # (hash of group, GroupRows)
        )
        # With too many groups for one worker, those whose hashes begin alike become one.
        sizes = (
            groups
            | "SizeOfGroup" >> beam.Map(_sizes_of)
            | "SumSizes" >> beam.CombineGlobally(GroupSizes.sum_of)
        )
        fewer = (
            groups
            | "ShortenHashes" >> beam.Map(_shortened, AsSingleton(sizes))
            | "MergeGroups" >> beam.CombinePerKey(_merged_rows)  # (first bits of hash, GroupRows)
        )
        return sizes | "AllocateGroups" >> beam.Map(_group_ranges, AsIter(fewer), self.analyzer)


# Number of rows by label as JSON, "" for all rows; and of rows in the base version, by split.
GroupRows: TypeAlias = tuple[dict[str, int], dict[str, int]]


def _groups_of_rows(rows: RowBatch, analyzer: Analyzer) -> Iterator[tuple[bytes, GroupRows]]:
    """Yields the hash of the group and the labels of each row that does not state its split."""
    find, strata = base_shard_lookup(analyzer.base), Strata(analyzer)
    for row, entity, base_split in unassigned_rows(rows, analyzer, find):
        labels = json.loads(strata.of(row) or "[]")
        counts = {"": 1, **{json.dumps(label): 1 for label in labels}}
        position = placement.split_position(entity, analyzer.config.seed)
        # Bytes, because coders of integers are signed.
        yield (
            position.to_bytes(placement.POSITION_BYTES, "big"),
            (counts, {base_split: 1} if base_split else {}),
        )


def _merged_rows(parts: Iterable[GroupRows]) -> GroupRows:
    labels, fixed = Counter[str](), Counter[str]()
    for counts, splits in parts:
        labels.update(counts)
        fixed.update(splits)
    return dict(labels), dict(fixed)


@dataclass(frozen=True)
class GroupSizes(Summed):
    """Sizes by which groups are merged or not."""

    groups: int = 0
    group_labels: int = 0
    labels: frozenset[str] = frozenset()

    @property
    def bits(self) -> int:
        """By how many bits of their hashes groups are distinguished."""
        return group_bits(self.groups, self.group_labels, len(self.labels))


def _sizes_of(group: tuple[bytes, GroupRows]) -> GroupSizes:
    _, (labels, _) = group
    return GroupSizes(1, len(labels), frozenset(labels))


def _shortened(group: tuple[bytes, GroupRows], sizes: GroupSizes) -> tuple[bytes, GroupRows]:
    """Returns the first bits of the hash of a group as a number, and its rows."""
    position, rows = group
    first = int.from_bytes(position, "big") >> (GROUP_BITS - sizes.bits)
    return first.to_bytes(placement.POSITION_BYTES, "big"), rows


def _group_ranges(
    sizes: GroupSizes, groups: Iterable[tuple[bytes, GroupRows]], analyzer: Analyzer
) -> SplitRanges:
    """Returns the split of each group."""
    names, weights = _whole_weights(analyzer)
    numbers = {label: number for number, label in enumerate(sorted(sizes.labels - {""}))}
    found = {}
    for hash_, (counts, fixed) in sorted(groups, key=itemgetter(0)):
        position = int.from_bytes(hash_, "big")
        kept = tuple(fixed.get(name, 0) for name in names)
        labels = {numbers[label]: number for label, number in counts.items() if label}
        found[position] = Group(labels, counts[""], kept if any(kept) else ())
    placed = allocate_groups(found, weights)
    rows = Counter[int]()
    for position, split in placed.items():
        rows[split] += found[position].rows
    bounds = _bounds_of_counts([*accumulate(rows[split] for split in range(len(names)))])
    of_groups = {position: split + 1 for position, split in placed.items()}
    return SplitRanges(names, bounds, groups=of_groups, group_bits=sizes.bits)
