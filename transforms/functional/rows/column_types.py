"""What kind of feature each column of a table makes, from all its values.

For schemas that take every column. A column of untyped text holds numbers if each of its values is
one; an identifier with leading zeros, or beyond 64 bits, stays text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordmill.schemas.features import Feature, Kind, Missing, Origin, Source
from recordmill.schemas.records import Items
from recordmill.transforms.functional.values.typed import looks_boolean, looks_integer, looks_number

_INTEGRAL = re.compile(r"[+-]?\d+", re.ASCII)
_TYPES = {bool: "bool", int: "int", float: "float", str: "text", bytes: "text"}


@dataclass
class ColumnKinds:
    """The sorts of value seen in each column; can be added to and merged in any order.

    Attributes:
        seen: column to the sorts of its values.
        untyped: columns with untyped text.
        lists: columns that hold lists.
        filled: column to the number of rows with a value.
    """

    seen: dict[str, set[str]] = field(default_factory=dict)
    untyped: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    filled: Counter[str] = field(default_factory=Counter)

    def add(self, values: Mapping[str, Any], is_text: bool | frozenset[str]) -> None:
        """Takes note of one row: its values, and whether, or which of them, are untyped text."""
        for column, found in values.items():
            value = _one(found)
            sorts = self.seen.setdefault(column, set())
            if value is None:
                continue
            untyped = is_text if isinstance(is_text, bool) else column in is_text
            if untyped:
                self.untyped.add(column)
            self.filled[column] += 1
            if isinstance(value, list):
                self.lists.add(column)
                sorts.update(_sort(item, untyped) for item in value if item is not None)
            else:
                sorts.add(_sort(value, untyped))

    def merge(self, other: ColumnKinds) -> None:
        """Takes note of all that another has seen."""
        for column, sorts in other.seen.items():
            self.seen.setdefault(column, set()).update(sorts)
        self.untyped |= other.untyped
        self.lists |= other.lists
        self.filled += other.filled

    def features(self, rows: int) -> dict[str, Feature]:
        """Returns the feature of each column, sorted by name.

        Args:
            rows: the number of all rows: a column that some lack may be empty.
        """
        return {column: self._feature(column, rows) for column in sorted(self.seen)}

    def _feature(self, column: str, rows: int) -> Feature:
        sorts = self.seen[column]
        kind = _kind(sorts, column in self.untyped)
        lacking = self.filled[column] < rows or ("empty" in sorts and kind is not Kind.BYTES)
        return Feature(
            kind=kind,
            sources=(Source(origin=Origin.COLUMN, name=column),),
            shape=() if column in self.lists else None,
            missing=Missing.EMPTY if lacking else Missing.REQUIRED,
        )


def _one(value: Any) -> Any:
    """Returns what a value is: of several that are all the same, that one."""
    if isinstance(value, Items) and all(item == value[0] for item in value):
        return value[0] if value else None
    return value


def _kind(sorts: set[str], untyped: bool) -> Kind:
    """Returns the kind that holds all of these, as untyped text does, or else the most of them."""
    values = sorts - {"empty"}
    if not values or "text" in values or (untyped and values >= {"bool", "float"}):
        return Kind.BYTES
    return Kind.FLOAT if "float" in values else Kind.INT64


def _sort(value: Any, is_text: bool) -> str:
    if is_text and isinstance(value, str):
        return _sort_of_text(value)
    return _TYPES.get(type(value), "text")


def _sort_of_text(text: str) -> str:
    if not text.strip():
        return "empty"
    if looks_boolean(text):
        return "bool"
    if looks_integer(text, True):
        return "int" if -(2**63) <= int(text) < 2**63 else "text"
    return "float" if looks_number(text) and not _INTEGRAL.fullmatch(text) else "text"
