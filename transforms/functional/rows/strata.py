"""The stratum of a row, its labels, and how many rows of each, or which groups, go to each split.

The analyze pass knows labels as they are in the table; bound rows have class ids.

Rows with the same labels are interchangeable, so that a label set and its number of rows stand for
them: what is in memory grows with the label sets, not with the rows. The methods are those of
iterative stratification (Sechidis, Tsoumakas, Vlahavas: On the Stratification of Multi-Label Data,
ECML PKDD 2011), applied to label sets as by Szymański and Kajdanowicz (2017): each row is placed in
the split that needs its labels most. They use integers only, so that results are the same on every
machine.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import NO_LABEL, Feature, Schema
from recordmill.schemas.plan import ClassIds, Plan, ResolvedSchema
from recordmill.schemas.records import OUTSIDE_CLASSES, FeatureValue, Row
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.analysis import Analyzer, labels_in
from recordmill.transforms.functional.rows.feature_values import class_id
from recordmill.transforms.functional.rows.placement import Sampler
from recordmill.transforms.functional.values.typed import without_fraction

# The labels of a row, sorted; () for rows without labels.
LabelSet: TypeAlias = tuple[int, ...]

_Key = TypeVar("_Key", bound=Hashable)

# Fractions of a row are multiples of 2^-32.
_ONE = 1 << 32

# Passes over all label sets or groups that improve a first allocation; three are the most seen for
# 100 labels, and eleven for 1,000.
_PASSES = 16
_GROUP_PASSES = 8

# Limits for the groups in memory: their number, and the labels of all of them.
MAX_GROUPS = 2**17
MAX_GROUP_LABELS = 2**21
_MIN_GROUP_BITS = 8

GROUP_BITS = 64


def distributes_groups(config: ConvertConfig, schema: Schema) -> bool:
    """Returns whether splits are made of whole groups, whose rows are counted."""
    # The frames of a sequence are a group, because their labels can differ.
    frames = schema.sequence is not None and config.split_method == "stratified"
    groups = config.group_column is not None or config.near_duplicates == "keep_together"
    return config.split_method != "hash" and (groups or frames)


class Strata:
    """The strata of rows, computed once for each label, as rows have few different ones."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        features = (analyzer.schema.features[name] for name in analyzer.schema.class_features)
        self._columns = [analyzer.binding.table_column(feature.source.name) for feature in features]
        self._known: dict[str, str] = {}

    def of(self, row: Row) -> str:
        """Returns the labels of a row as JSON; "" unless splits are stratified."""
        if self._analyzer.config.split_method != "stratified":
            return ""
        # As text, because 1 == True, and lists cannot be keys.
        values = repr([row.values.get(column) for column in self._columns])
        if values not in self._known:
            labels = {
                (number, label)
                for number, name in enumerate(self._analyzer.schema.class_features)
                for label in _labels(row, name, self._analyzer)
            }
            # ASCII, because labels that no encoding can represent are rejected only later.
            ordered = sorted(labels, key=lambda found: (found[0], str(found[1])))
            self._known[values] = json.dumps(ordered)
        return self._known[values]


@dataclass(frozen=True)
class ClassSampler(Sampler):
    """Selects the first rows of each class; a row of several has to be among those of all."""

    outside: ClassVar[str] = OUTSIDE_CLASSES
    analyzer: Analyzer = field(kw_only=True)

    def groups(self, found: Row | Reject) -> Sequence[str]:
        """Returns the features and labels of a row; none for one without a class."""
        if isinstance(found, Reject):
            return ()
        features = self.analyzer.schema.class_features
        labels = (
            (name, str(without_fraction(label)))  # 2 and 2.0 are one class without names
            for name in features
            for label in _labels(found, name, self.analyzer)
        )
        # ASCII, as of strata: labels that no encoding can represent are rejected only later.
        return [f"{name} {label!a}" for name, label in labels if label != str(NO_LABEL)]


def _labels(row: Row, name: str, analyzer: Analyzer) -> Iterable[str | int]:
    feature = analyzer.schema.features[name]
    column = analyzer.binding.table_column(feature.source.name)
    found = labels_in(row.values.get(column), feature, row.untyped(column))
    if not (names := analyzer.listed.classes[name]):
        return found
    # A class of a given list can be written as its name or its id.
    ids = analyzer.listed.class_ids[name]
    known = (_id_of(label, ids) for label in found)
    return [names[number] for number in known if number is not None]


def _id_of(label: str | int, ids: ClassIds) -> int | None:
    try:
        return class_id(label, False, ids)
    except RecordError:
        return None  # the row is rejected


def _label_set_of_stratum(stratum: str, resolved: ResolvedSchema) -> LabelSet:
    """Returns the class ids of a stratum, as `Strata.of` returns it."""
    features = resolved.schema.class_features
    found = set()
    for number, label in json.loads(stratum):
        if (id_ := _id_of(label, resolved.class_ids[features[number]])) is not None:
            found.add(id_ * len(features) + number)
    return tuple(sorted(found))


def label_set_of_values(
    values: Sequence[FeatureValue], classes: Sequence[tuple[int, Feature]]
) -> LabelSet:
    """Returns the class ids of a bound row, as of its stratum; `classes` as in `class_positions`.

    >>> label = Feature.model_validate({"kind": "int64", "from": "column:a", "classes": True})
    >>> label_set_of_values([b"a", 3, [0, 0]], [(1, label), (2, label)])
    (1, 6)
    """
    of_features = [label_ids(values[position], feature) for position, feature in classes]
    return tuple(
        sorted({id_ * len(classes) + n for n, ids in enumerate(of_features) for id_ in ids})
    )


def class_positions(schema: Schema) -> list[tuple[int, Feature]]:
    """Returns the class features of a resolved schema, with their positions among all features."""
    names = list(schema.features)
    return [(names.index(name), schema.features[name]) for name in schema.class_features]


def with_class_ids(plan: Plan) -> Plan:
    """Returns a plan whose strata are class ids instead of labels as text."""
    if plan.ranges is None or not plan.ranges.strata:
        return plan
    strata = {
        _label_set_of_stratum(str(stratum), plan.resolved): bounds
        for stratum, bounds in plan.ranges.strata.items()
    }
    return replace(plan, ranges=replace(plan.ranges, strata=strata))


def allocate_rows(
    counts: Mapping[LabelSet, int],
    weights: Sequence[int],
    fixed: Mapping[LabelSet, Sequence[int]] | None = None,
) -> dict[LabelSet, list[int]]:
    """Returns the number of rows of each label set in each split.

    Each is the exact share, rounded up or down. Rounding is balanced over all rows, and over the
    rows with each label. `fixed` are the rows of a label set already in each split, with which
    the rows in `counts` come as close to the shares as possible. All weights are above 0.

    >>> allocate_rows({(0,): 5, (1,): 5}, [1, 1])
    {(0,): [3, 2], (1,): [2, 3]}
    """
    exact = {
        labels: _exact(counts[labels], weights, (fixed or {}).get(labels)) for labels in counts
    }
    rounding = _Rounding(exact, weights, fixed or {})
    # Label sets with many labels come first: those with few can balance what is left.
    for labels in sorted(counts, key=lambda labels: (-len(labels), labels)):
        rounding.place(labels, counts[labels])
    rounding.improve()
    return {labels: rounding.rows[labels] for labels in counts}


def _exact(rows: int, weights: Sequence[int], fixed: Sequence[int] | None) -> list[int]:
    """Returns the exact number of rows for each split, in multiples of 2^-32."""
    total, kept = sum(weights), fixed or [0] * len(weights)
    # What a split lacks of its share; splits with more than their share get no row.
    of_all = rows + sum(kept)
    lacks = [max(0, weight * of_all - total * n) for weight, n in zip(weights, kept, strict=True)]
    return [lack * rows * _ONE // (sum(lacks) or 1) for lack in lacks]


class _Rounding:
    """Exact shares, and their rounding to whole rows."""

    def __init__(
        self,
        exact: Mapping[LabelSet, Sequence[int]],
        weights: Sequence[int],
        fixed: Mapping[LabelSet, Sequence[int]],
    ) -> None:
        self.rows: dict[LabelSet, list[int]] = {}
        self._exact = exact
        # By how much each split exceeds its share: of the rows with a label, and of all rows (-1).
        self._excess: dict[int, list[int]] = defaultdict(lambda: [0] * len(weights))
        total = sum(weights)
        for labels, kept in fixed.items():
            of_set = exact.get(labels) or [0] * len(weights)
            everything = sum(of_set) + sum(kept) * _ONE
            for split, weight in enumerate(weights):
                over = of_set[split] + kept[split] * _ONE - everything * weight // total
                for label in (*labels, -1):
                    self._excess[label][split] += over

    def place(self, labels: LabelSet, rows: int) -> None:
        """Rounds the shares of a label set down, and gives each row that is left to one split."""
        exact = self._exact[labels]
        excess = self._excess_of(labels)
        parts = [share % _ONE for share in exact]
        chosen = [share // _ONE for share in exact]
        for of_label in excess:
            for split, part in enumerate(parts):
                of_label[split] -= part
        # Only shares that are not whole are rounded up, and each by less than one row.
        free = [split for split, part in enumerate(parts) if part] or list(range(len(exact)))
        for _ in range(rows - sum(chosen)):
            split = min(free, key=lambda split: (sum(e[split] for e in excess), split))
            free.remove(split)
            chosen[split] += 1
            for of_label in excess:
                of_label[split] += _ONE
        self.rows[labels] = chosen

    def improve(self) -> None:
        """Moves rows between splits as long as a label is off by more than one row."""
        for _ in range(_PASSES):
            uneven = {
                label
                for label, excess in self._excess.items()
                if max(excess) > _ONE or min(excess) < -_ONE
            }
            if not sum(self._move(s) for s in self.rows if not uneven.isdisjoint((*s, -1))):
                return

    def _move(self, labels: LabelSet) -> bool:
        """Moves a row from a share rounded up to one rounded down, if that evens out the labels."""
        exact, rows, excess = self._exact[labels], self.rows[labels], self._excess_of(labels)
        up = [k for k, share in enumerate(exact) if rows[k] * _ONE > share]
        down = [k for k, share in enumerate(exact) if (rows[k] + 1) * _ONE - share < _ONE]
        moves = [(_change(excess, a, b), a, b) for a in up for b in down if a != b]
        change, source, target = min(moves, default=(0, 0, 0))
        if change >= 0:
            return False
        rows[source] -= 1
        rows[target] += 1
        for of_label in excess:
            of_label[source] -= _ONE
            of_label[target] += _ONE
        return True

    def _excess_of(self, labels: LabelSet) -> list[list[int]]:
        return [self._excess[label] for label in (*labels, -1)]


def _change(excess: Iterable[Sequence[int]], source: int, target: int) -> int:
    """Returns by how much moving a row changes the sum of fourth powers of the excesses."""
    # With fourth powers, the largest excess counts most, which is the one that has to shrink.
    return sum(
        (e[source] - _ONE) ** 4 - e[source] ** 4 + (e[target] + _ONE) ** 4 - e[target] ** 4
        for e in excess
    )


class Group(NamedTuple):
    """The rows of a group, or of several with similar hashes, which are in one split."""

    labels: Mapping[int, int]
    rows: int
    # Number of rows in each split of the base version; () if there are none.
    fixed: tuple[int, ...] = ()


def allocate_groups(groups: Mapping[_Key, Group], weights: Sequence[int]) -> dict[_Key, int]:
    """Returns the number of the split of each group, so that splits come close to their shares.

    Large groups are placed first, each where its labels are needed most. Then groups are moved as
    long as this helps. A group of the base version stays in the split with most of its rows. The
    order of the groups must not depend on the run.
    """
    placing = _GroupPlacing(groups.values(), weights)
    found = dict[_Key, int]()
    # [(key, [(label, rows)])]; the sort is stable
    largest_first = sorted(groups.items(), key=lambda item: -item[1].rows)
    ordered = [(k, (*{**g.labels, -1: g.rows}.items(),)) for k, g in largest_first]
    for key, counts in ordered:
        if kept := groups[key].fixed:
            found[key] = kept.index(max(kept))
            placing.add(counts, found[key], 1)
    free = [(key, counts) for key, counts in ordered if key not in found]
    for key, counts in free:
        found[key] = placing.best(counts)
        placing.add(counts, found[key], 1)
    for _ in range(_GROUP_PASSES):
        moved = False
        for key, counts in free:
            placing.add(counts, found[key], -1)
            split = placing.best(counts, found[key])
            placing.add(counts, split, 1)
            moved |= split != found[key]
            found[key] = split
        if not moved:
            break
    return found


class _GroupPlacing:
    """The rows with each label in each split, compared with their shares."""

    def __init__(self, groups: Iterable[Group], weights: Sequence[int]) -> None:
        total = Counter[int]()
        for group in groups:
            total.update({**group.labels, -1: group.rows})
        self._splits = range(len(weights))
        self._one = sum(weights)
        # What each split has above its share, times the sum of the weights; -1 is all rows.
        self._excess = {label: [-w * n for w in weights] for label, n in total.items()}
        # Errors are relative to the share, so that small splits and rare labels count as much.
        self._scale = {label: [_ONE**2 // (w * n) for w in weights] for label, n in total.items()}
        # The size of a split counts more than a label, but less than all labels together.
        self._scale[-1] = [scale * isqrt(len(total)) for scale in self._scale.get(-1, ())]

    def add(self, counts: Iterable[tuple[int, int]], split: int, sign: int) -> None:
        """Adds a group to a split, or removes it from there if the sign is -1."""
        for label, rows in counts:
            self._excess[label][split] += sign * rows * self._one

    def best(self, counts: Iterable[tuple[int, int]], current: int = 0) -> int:
        """Returns the split where a group reduces the squared error most, else `current`."""
        costs = [0] * len(self._splits)
        for label, rows in counts:
            excess, scale, size = self._excess[label], self._scale[label], rows * self._one
            for split in self._splits:
                costs[split] += rows * (2 * excess[split] + size) * scale[split]
        return min(self._splits, key=lambda split: (costs[split], split != current, split))


def group_bits(groups: int, group_labels: int, labels: int) -> int:
    """Returns by how many bits of their hashes groups are distinguished.

    Above the limits, groups with the same first bits are placed together.

    >>> group_bits(5_000, 9_000, 10), group_bits(10**6, 10**7, 1_000), group_bits(10**6, 10**7, 9)
    (64, 11, 17)
    """
    if groups <= MAX_GROUPS and group_labels <= MAX_GROUP_LABELS:
        return GROUP_BITS
    fitting = min(MAX_GROUPS, MAX_GROUP_LABELS // max(1, labels))
    return max(_MIN_GROUP_BITS, fitting.bit_length() - 1)
