"""What the survey of all rows settles before the first record is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from recordmill.schemas.features import Schema

_NUMERAL = re.compile(r"0|-?[1-9]\d*", re.ASCII)


class ClassIds(dict[str, int]):
    """Class name to id."""

    @cached_property
    def has_numerals(self) -> bool:
        """Whether a class name looks like an integer: where one does, an integer is a name."""
        return any(_NUMERAL.fullmatch(name) and len(name) <= 20 for name in self)


@dataclass(frozen=True)
class ResolvedSchema:
    """A schema whose sources, kinds and class names are settled.

    Attributes:
        schema: each feature has one source; nothing is left to find.
        classes: feature to its class names in the order of their ids; none if labels are integers.
    """

    schema: Schema
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def class_ids(self) -> dict[str, ClassIds]:
        """Feature to class name to id."""
        return {
            feature: ClassIds((name, i) for i, name in enumerate(names))
            for feature, names in self.classes.items()
            if names
        }

    def class_feature_of(self, column: str) -> str | None:
        """Returns the feature that holds the class ids of a schema column's labels, if any."""
        features = self.schema.features
        return next((f for f in self.schema.class_features if features[f].column == column), None)

    def class_name(self, feature: str, label: int) -> str:
        """Returns the text of a label: its class's name, or the number where there are none."""
        names = self.classes.get(feature)
        return names[label] if names else str(label)


@dataclass(frozen=True)
class Plan:
    """How the rows become a dataset.

    Attributes:
        resolved: the settled schema.
        shards: split to its number of shards.
        rows: how many rows the survey saw.
        starts: split to where in the order each of its shards but the first begins, if they are to
            hold a number of records; otherwise they are equal ranges.
    """

    resolved: ResolvedSchema
    shards: Mapping[str, int]
    rows: int
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
