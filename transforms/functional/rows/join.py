"""Joins a row with the rows of a second table that have the same value in one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recordmill.schemas.records import Items, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.values.typed import one_of, to_bytes


def join_key(row: Row, column: str) -> str:
    """Returns what a row is joined by: the text of a column, or its integer in decimal.

    Raises:
        RecordError: missing_value or wrong_type, if it has neither.
    """
    try:
        value = one_of(row.values.get(column))
        if value is None or value == "":
            raise RecordError(Reason.MISSING_VALUE, "empty; rows are joined by it")
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise RecordError(Reason.WRONG_TYPE, f"expected text or integers, got {value!r}")
        to_bytes(value, is_text=True)
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None
    return value


def joined(row: Row, labels: Sequence[Row]) -> Row:
    """Returns a row with the columns of its label rows, which win where both have one.

    Each of their values is one of several: a list for features that are lists, and for all others
    it has to be the same in each.

    Args:
        row: of the input.
        labels: those with the same key, at least one, in any order.
    """
    ordered = sorted(labels, key=lambda label: (label.file, label.line))
    columns = dict.fromkeys(column for label in ordered for column in label.values)
    values = {column: Items(label.values.get(column) for label in ordered) for column in columns}
    untyped = {column for column in row.values if row.untyped(column)} - columns.keys()
    untyped |= {column for label in ordered for column in label.values if label.untyped(column)}
    return replace(row, values={**row.values, **values}, is_text=frozenset(untyped))


def unmatched(row: Row, key: str, column: str, image_column: str) -> Reject:
    """Returns the reject of a row without labels."""
    name = row.values.get(image_column)
    detail = f"the labels have no row whose {column!r} is {key!r}"
    return Reject(
        name if isinstance(name, str) else "",
        row.own_uri,
        row.source,
        Reason.UNMATCHED_JOIN,
        detail,
    )
