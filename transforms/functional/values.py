"""Strict typing: a table's value becomes exactly what its feature declares, or it is refused.

Nothing is guessed: 1.5 is no int64, a bool is an int64, and 0, "" and False are values.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from schemas.features import Feature, Kind
from schemas.rejects import Reason, RecordError

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)
_BOOLEANS = {"true": 1, "false": 0}


def to_int64(value: Any, is_text: bool) -> int:
    """Returns the value as an integer that fits 64 bits.

    Raises:
        RecordError: wrong_type, for everything that is no integer.
    """
    if is_text and isinstance(value, str):
        text = value.strip()
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        value = int(text) if _INTEGER.fullmatch(text) and len(text) <= 20 else value
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise _wrong_type(value, "an int64")
    return int(value)


def to_float(value: Any, is_text: bool) -> float:
    """Returns the value as a number that a float32 can hold, rounded to one by the encoder.

    Raises:
        RecordError: wrong_type, for everything that is no number, and beyond float32's range.
    """
    if is_text and isinstance(value, str):
        text = value.strip()
        value = float(text) if _NUMBER.fullmatch(text) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(value, "a float")
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError as error:
        raise _wrong_type(value, "a float within float32's range") from error


def to_bytes(value: Any, is_text: bool) -> bytes:
    """Returns text in UTF-8, and bytes as they are.

    Raises:
        RecordError: wrong_type, for everything else.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _wrong_type(value, "text or bytes")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _wrong_type(value, "text without lone surrogates") from error


Converter: TypeAlias = Callable[[Any, bool], Any]
"""From a table's value, and whether it is untyped text, to a feature's."""

CONVERTERS: dict[Kind, Converter] = {
    Kind.INT64: to_int64,
    Kind.FLOAT: to_float,
    Kind.BYTES: to_bytes,
}


def items_of(value: Any, feature: Feature, is_text: bool) -> list[Any]:
    """Returns the items of a list: in text, of a JSON array or parted by the separator.

    Raises:
        RecordError: wrong_type, if the value is no list.
    """
    if is_text and isinstance(value, str):
        return _items_of_text(value.strip(), feature)
    if not isinstance(value, list | tuple):
        raise _wrong_type(value, "a list")
    return list(value)


def is_missing(value: Any, feature: Feature, is_text: bool) -> bool:
    """Returns whether a row lacks a value.

    In text tables an empty field is a value only for text: it is no number and no class.
    """
    if value is None:
        return True
    text_value = feature.kind is Kind.BYTES or feature.shape is not None
    return is_text and not text_value and isinstance(value, str) and not value.strip()


def looks_integer(value: Any, is_text: bool) -> bool:
    """Returns whether a label is an integer; in text, one written as integers print.

    >>> looks_integer("007", True), looks_integer("7", True), looks_integer(7, False)
    (False, True, True)
    """
    if is_text and isinstance(value, str):
        return len(value) <= 20 and bool(_INTEGER.fullmatch(value)) and str(int(value)) == value
    return isinstance(value, int)


def looks_number(text: str) -> bool:
    """Returns whether a text is a number, and not an identifier with leading zeros."""
    finite = bool(_NUMBER.fullmatch(text)) and not math.isinf(float(text))
    return finite and not re.match(r"[+-]?0\d", text)


def looks_boolean(text: str) -> bool:
    """Returns whether a text is true or false."""
    return text.lower() in _BOOLEANS


def _items_of_text(text: str, feature: Feature) -> list[Any]:
    if not text:
        return []
    if not text.startswith("["):
        return text.split(feature.separator)
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong_type(text, "a JSON array") from error
    return list(items)


def _wrong_type(value: Any, expected: str) -> RecordError:
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:80] + "…"
    return RecordError(Reason.WRONG_TYPE, f"expected {expected}, got {shown}")
