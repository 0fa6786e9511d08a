"""Class labels: names become ids, integers stay integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from schemas.rejects import Reason, RecordError
from transforms.functional.values import has_surrogates, looks_integer, to_bytes, to_int64


def class_id(value: Any, is_text: bool, ids: Mapping[str, int] | None) -> int:
    """Returns the id of a label.

    Args:
        value: a class's name, or its id.
        is_text: whether integers are written as text.
        ids: class name to id; None if labels are integers that stand for themselves.

    Raises:
        RecordError: unknown_label for what is no class, wrong_type for what can be none.
    """
    if ids is None:
        return to_int64(value, is_text)
    name = str(int(value)) if isinstance(value, int) else value
    if isinstance(name, str) and name in ids:
        return ids[name]
    if looks_integer(value, is_text) and _ids_are_plain(ids):
        return _known_id(int(value), len(ids))
    if not isinstance(value, str | int):
        raise RecordError(Reason.WRONG_TYPE, f"expected a class name or id, got {value!r}")
    if isinstance(value, str) and not is_class_name(value):
        detail = f"{value!r} is no class name: white space around it, or several lines"
        raise RecordError(Reason.UNKNOWN_LABEL, detail)
    raise RecordError(Reason.UNKNOWN_LABEL, f"{value!r} is none of the {len(ids)} classes")


def label_text(value: Any, is_text: bool) -> bytes:
    """Returns the text of a label that has no class name: an integer in decimal.

    Raises:
        RecordError: wrong_type, for what is neither text nor integer.
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    return to_bytes(str(value) if number else value, is_text)


def sorted_names(labels: Iterable[str | int]) -> tuple[str, ...]:
    """Returns the class names that a table's labels amount to; none if all are integers.

    >>> sorted_names(["dog", "cat"]), sorted_names([3, 1])
    (('cat', 'dog'), ())
    """
    found = {label for label in labels if is_class_name(str(label))}
    if all(isinstance(label, int) for label in found):
        return ()
    return tuple(sorted({str(label) for label in found}))


def is_class_name(text: str) -> bool:
    """Returns whether a text can stand in a line of labels.txt, as TFDS reads it: stripped."""
    one_line = bool(text) and text == text.strip() and len(text.splitlines()) == 1
    return one_line and not has_surrogates(text)


def _known_id(number: int, count: int) -> int:
    if not 0 <= number < count:
        raise RecordError(Reason.UNKNOWN_LABEL, f"id {number} is not within 0 to {count - 1}")
    return number


def _ids_are_plain(ids: Mapping[str, int]) -> bool:
    """Returns whether a number can only be an id: where a name looks like one, names win."""
    return not any(looks_integer(name, True) for name in ids)
