"""The stratum of a row: its labels, by which splits are stratified.

The analyze pass knows labels as they are in the table; bound rows have class ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ClassIds, Plan, ResolvedSchema
from recordmill.schemas.records import FeatureValue, Row
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.analysis import Analyzer, labels_in
from recordmill.transforms.functional.rows.feature_values import class_id, with_background
from recordmill.transforms.functional.rows.stratification import LabelSet


def distributes_groups(config: ConvertConfig, schema: Schema) -> bool:
    """Returns whether splits are made of whole groups, whose rows are counted.

    `schema` is the schema. The frames of a sequence are a group, because their labels can differ.
    """
    frames = schema.sequence is not None and config.split_method == "stratified"
    groups = config.group_column is not None or config.near_duplicates == "keep_together"
    return config.split_method != "hash" and (groups or frames)


def _stratum_of_row(row: Row, analyzer: Analyzer) -> str:
    """Returns the labels of a row as JSON; "" unless splits are stratified."""
    if analyzer.config.split_method != "stratified":
        return ""
    labels = {
        (number, label)
        for number, name in enumerate(analyzer.schema.class_features)
        for label in _labels(row, name, analyzer)
    }
    # ASCII, because labels that no encoding can represent are rejected only later.
    return json.dumps(sorted(labels, key=lambda found: (found[0], str(found[1]))))


class Strata:
    """The strata of some rows with the same columns of untyped text.

    Rows have few different labels, so that the stratum of each is computed once.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        """Remembers no stratum."""
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
            self._known[values] = _stratum_of_row(row, self._analyzer)
        return self._known[values]


def _labels(row: Row, name: str, analyzer: Analyzer) -> Iterable[str | int]:
    feature = analyzer.schema.features[name]
    column = analyzer.binding.table_column(feature.source.name)
    found = labels_in(row.values.get(column), feature, row.untyped(column))
    if analyzer.config.class_names is None:
        return found
    # A class of a given list can be written as its name or its id.
    names = with_background(analyzer.config.class_names, feature.label_offset)
    ids = ClassIds((name, number) for number, name in enumerate(names))
    known = (_id_of(label, ids, feature.label_offset) for label in found)
    return [names[number] for number in known if number is not None]


def _id_of(label: str | int, ids: ClassIds | None, offset: int) -> int | None:
    try:
        return class_id(label, False, ids, offset)
    except RecordError:
        return None  # the row is rejected


def _label_set_of_stratum(stratum: str, resolved: ResolvedSchema) -> LabelSet:
    """Returns the class ids of a stratum.

    `stratum`: labels as JSON, as in `_stratum_of_row`.
    """
    features = resolved.schema.class_features
    found = set()
    for number, label in json.loads(stratum):
        offset = resolved.schema.features[features[number]].label_offset
        id_ = _id_of(label, resolved.class_ids.get(features[number]), offset)
        if id_ is not None:
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
