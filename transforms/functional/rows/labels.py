"""Class labels: names become ids, integers stay integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.plan import ClassIds
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.values.typed import (
    has_surrogates,
    looks_integer,
    shown,
    to_bytes,
    to_int64,
)

BACKGROUND = "background"
"""The name of id 0, where labels are offset to leave it free."""


def class_id(value: Any, is_text: bool, ids: ClassIds | None, offset: int = 0) -> int:
    """Returns the id of a label.

    Args:
        value: a class's name, or its id.
        is_text: whether integers are written as text.
        ids: class name to id; None if labels are integers that stand for themselves.
        offset: what is added to integers; names have it in their ids.

    Raises:
        RecordError: unknown_label for what is no class, wrong_type for what can be none.
    """
    if ids is None:
        return _shifted(to_int64(value, is_text), offset)
    name = str(int(value)) if isinstance(value, int) else value
    if isinstance(name, str) and name in ids:
        return ids[name]
    if looks_integer(value, is_text) and not ids.has_numerals:
        return _known_id(int(value), len(ids) - offset) + offset
    if not isinstance(value, str | int):
        raise RecordError(Reason.WRONG_TYPE, f"expected a class name or id, got {shown(value)}")
    if isinstance(value, str) and not is_class_name(value):
        detail = f"{shown(value)} is no class name: white space around it, or several lines"
        raise RecordError(Reason.UNKNOWN_LABEL, detail)
    raise RecordError(Reason.UNKNOWN_LABEL, f"{shown(value)} is none of the {len(ids)} classes")


def label_text(value: Any, is_text: bool) -> bytes:
    """Returns the text of a label that has no class name: an integer in decimal.

    Raises:
        RecordError: wrong_type, for what is neither text nor integer.
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    return to_bytes(str(value) if number else value, is_text)


def sorted_class_names(labels: Iterable[str | int]) -> tuple[str, ...]:
    """Returns the class names that a table's labels amount to; none if all are integers.

    >>> sorted_class_names(["dog", "cat"]), sorted_class_names([3, 1])
    (('cat', 'dog'), ())
    """
    found = {label for label in labels if is_class_name(str(label))}
    if all(isinstance(label, int) for label in found):
        return ()
    return tuple(sorted({str(label) for label in found}))


def with_background(names: tuple[str, ...], offset: int) -> tuple[str, ...]:
    """Returns class names with that of the background before them, if ids are offset by 1.

    >>> with_background(("cat", "dog"), 1)
    ('background', 'cat', 'dog')
    """
    if not names or not offset:
        return names
    return BACKGROUND, *(name for name in names if name != BACKGROUND)


def merged_class_names(labels: Iterable[str | int], known: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the class names of a table's labels, those of a base first: their ids stay.

    Args:
        labels: all that were found, integers as such.
        known: the names of the base in the order of their ids; none if its labels are integers;
            None if there is no base.

    Raises:
        UsageError: if labels of the base are integers, and names were found.

    >>> merged_class_names(["ant", "dog"], ("cat", "dog"))
    ('cat', 'dog', 'ant')
    """
    names = sorted_class_names(labels)
    if known is None:
        return names
    if names and not known:
        raise UsageError(
            f"--base: its labels are integers, and {names[0]!r} is a name; "
            "begin a dataset of its own, or name the classes by their numbers"
        )
    return tuple(dict.fromkeys((*known, *names)))


def is_class_name(text: str) -> bool:
    """Returns whether a text can stand in a line of labels.txt, as TFDS reads it: stripped."""
    one_line = bool(text) and text == text.strip() and len(text.splitlines()) == 1
    return one_line and not has_surrogates(text)


def _shifted(number: int, offset: int) -> int:
    if number > 2**63 - 1 - offset:
        raise RecordError(Reason.WRONG_TYPE, f"{number} and an offset of {offset} make no int64")
    return number + offset


def _known_id(number: int, count: int) -> int:
    if not 0 <= number < count:
        raise RecordError(Reason.UNKNOWN_LABEL, f"id {number} is not within 0 to {count - 1}")
    return number
