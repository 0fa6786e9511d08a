"""Strict conversion of table values to the types of their features.

Nothing is guessed: 1.5 is not a valid int64, booleans are, and 0, "" and False count as values.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeGuard, TypeVar

import numpy as np

from recordmill.schemas.features import NO_LABEL, Feature
from recordmill.schemas.origins import Kind, Origin
from recordmill.schemas.records import Items
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.yaml_files import shortened
from recordmill.transforms.functional.values.documents import parse_json

_T = TypeVar("_T")

# Half a step above the largest float32; larger numbers round to infinity.
FLOAT32_MAX = 3.4028235677973366e38

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_INTEGRAL = re.compile(r"[+-]?\d{1,20}\.0+", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)
_COMMA = re.compile(r"[+-]?\d*(?:\.\d{3})*,\d+", re.ASCII)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d*\.\d*(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# Of texts that are a line each: identifiers with leading zeros, marks of missing values, and
# numbers with marks between thousands, units or an exponent; and numbers that may have too many
# digits for float32.
_LIKE_NUMBERS = re.compile(
    r"(?aim)^[ \t\r]*(?:(0\d+)|([-?.]+|n[/.]?a\.?|null|none|missing|unknown|#\S+[!?])"
    r"|[+\u2212-]?[$€£]?[ \xa0]?(?=[.,]?\d)(?:\d{1,3}(?:[., '’\xa0\u202f]\d{3})+|\d{0,18})"
    r"(?:[.,]\d+)?(?:e[+-]?\d+)?[ \xa0\u202f\t]?[%€£]?|[+-]?inf(?:inity)?|nan)[ \t\r]*$"
)
_MANY_DIGITS = re.compile(r"(?aim)^[+-]?\d{8,20}(?:\.\d*(?:e[+-]?\d+)?)?$")
# 19 numbers outweigh a text, one outweighs a missing value, and none an identifier.
NUMBER, _MISSING, _TEXT, _ID = 20, -19, -379, -(10**15)
_SHOWN = 80
_NUMBER_BYTES = 8
_BOOLEANS = {"true": 1, "false": 0}


def to_int64(value: Any, is_text: bool) -> int:
    """Returns the value as a 64-bit integer; `is_text`: the table is untyped text, as CSV is."""
    if is_text and isinstance(value, str):
        text = value.strip()
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        # Text of over 20 digits cannot fit; int() is quadratic in the length.
        value = int(text) if _INTEGER.fullmatch(text) and len(text) <= 20 else value
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise _wrong_type(value, "an int64")
    return int(value)


def _to_float(value: Any, is_text: bool) -> float:
    """Returns the value rounded to float32, as the encoder stores it."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", to_number(value, is_text)))[0])
    except OverflowError as error:
        raise _wrong_type(value, "a float within float32's range") from error


def to_number(value: Any, is_text: bool) -> float:
    """Returns the value as a float64; raises RecordError (wrong_type) if it is none."""
    if is_text and isinstance(value, str):
        text = value.strip()
        value = _finite_or_named(text) if _NUMBER.fullmatch(text) else value
    # bool is a subclass of int, but not a float feature.
    if isinstance(value, bool) or not isinstance(value, int | float):
        is_comma = isinstance(value, str) and number_form(value) == "comma"
        hint = " with a decimal point, not a comma" * is_comma
        raise _wrong_type(value, f"a float within float32's range{hint}")
    try:
        return float(value)
    except OverflowError as error:  # integers beyond the range of floats
        raise _wrong_type(value, "a float within float32's range") from error


def to_bytes(value: Any, is_text: bool) -> bytes:
    """Returns text as UTF-8, and bytes unchanged; raises RecordError for all other types."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _wrong_type(value, "text or bytes")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _wrong_type(value, "text without lone surrogates") from error


# Converts (value, whether it is from untyped text) to the value of a feature.
Converter: TypeAlias = Callable[[Any, bool], Any]


def _finite_or_named(text: str) -> float | str:
    """Returns the number in a text, or the text itself if the number overflows to infinity."""
    value = float(text)
    return text if math.isinf(value) and "inf" not in text.lower() else value


CONVERTERS: dict[Kind, Converter] = {
    Kind.INT64: to_int64,
    Kind.FLOAT: _to_float,
    Kind.BYTES: to_bytes,
}


def items_of(value: Any, feature: Feature, is_text: bool) -> list[Any]:
    """Returns the items of a list; in text tables, of a JSON array or a separated list."""
    if is_text and isinstance(value, str):
        return _items_of_text(value.strip(), feature)
    if feature.single and not isinstance(value, list | tuple):
        return [value]
    if not isinstance(value, list | tuple):
        parts = value.split(feature.separator) if isinstance(value, str) else ()
        raise _wrong_type(value, f"a list, such as {short_repr(parts)}" if parts else "a list")
    if isinstance(value, Items):  # each element is an item, or itself a list of items
        return [item for one in value for item in _items_of_one(one, feature, is_text)]
    return list(value)


def renamed_labels(
    value: Any, feature: Feature, is_text: bool, names: Mapping[str, str], seen: set[str]
) -> Any:
    """Returns labels with other class names; adds the names that are replaced to `seen`.

    >>> feature = Feature.model_validate({"kind": "int64", "from": "column:a", "classes": True})
    >>> renamed_labels([2, 2.0, "2.0", True, "b"], feature, False, {"2": "two", "1": "yes"}, set())
    ['two', 'two', 'two', 'yes', 'b']
    """
    if is_text and isinstance(value, str) and feature.shape is not None:
        with suppress(RecordError):  # the row is rejected when it is bound
            value = items_of(value, feature, True)
    if isinstance(value, list | tuple):
        renamed = (renamed_labels(one, feature, False, names, seen) for one in value)
        return Items(renamed) if isinstance(value, Items) else list(renamed)
    if not isinstance(value, str | int | float):
        return value
    name = str(int(value) if isinstance(value, bool) else value)
    name = name if name in names else str(without_fraction(value))
    if name not in names:
        return value
    seen.add(name)
    return names[name]


def single_value(value: Any) -> Any:
    """Returns the single value of a feature; several equal values count as one."""
    if not isinstance(value, Items):
        return value
    if any(item != value[0] for item in value):
        several = ", ".join(dict.fromkeys(short_repr(item) for item in value))
        raise RecordError(Reason.WRONG_TYPE, f"expected one value, got several: {several}")
    # All values are equal, so return the first one.
    return value[0] if value else None


def flattened(items: list[Any], shape: tuple[int | None, ...]) -> list[Any]:
    """Returns the items of nested lists as one list, in row-major order.

    `shape` is the size of each level; None for any size.

    >>> flattened([[1, 2], [3, 4], [5, 6]], (None, 2))
    [1, 2, 3, 4, 5, 6]
    """
    expected, inner = shape[0], shape[1:]
    if expected is not None and len(items) != expected:
        raise RecordError(Reason.WRONG_TYPE, f"expected {expected} items, got {len(items)}")
    if not inner:
        return items
    for item in items:
        if not isinstance(item, list | tuple):
            raise _wrong_type(item, "a list" if inner[0] is None else f"a list of {inner[0]}")
    return [value for item in items for value in flattened(list(item), inner)]


def check_count(count: int, shape: tuple[int | None, ...]) -> None:
    """Raises RecordError if a number of items does not fill a shape; None is any size."""
    whole = math.prod(size for size in shape if size is not None)
    if count % whole if None in shape else count != whole:
        expected = f"a multiple of {whole}" if None in shape else str(whole)
        raise RecordError(Reason.WRONG_TYPE, f"expected {expected} items, got {count}")


def row_lengths(items: list[Any]) -> list[int]:
    """Returns the length of each list in a list."""
    flattened(items, (None, None))
    return [len(item) for item in items]


_NO_LABEL = str(NO_LABEL)


def is_missing(value: Any, feature: Feature, is_text: bool) -> bool:
    """Returns whether a row has no value for a feature.

    In text tables, an empty field is a valid text, but not a number or a class name.
    """
    if value is None:
        return True
    if feature.no_label is not None and (value == feature.no_label or value == _NO_LABEL):
        return True
    if not is_text or not isinstance(value, str) or value.strip():
        return False
    if feature.shape is not None:  # an empty list is valid, unless the shape requires items
        return feature.shape != () and not feature.has_open_rows
    return feature.kind is not Kind.BYTES or feature.source.origin is Origin.CLASS_NAME


def has_surrogates(text: str) -> bool:
    """Returns whether a text contains lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def looks_integer(value: Any, is_text: bool) -> bool:
    """Returns whether a label is an integer; in text tables, one in canonical form.

    >>> looks_integer("007", True), looks_integer("7", True), looks_integer(7, False)
    (False, True, True)
    """
    if is_text and isinstance(value, str):
        return len(value) <= 20 and bool(_INTEGER.fullmatch(value)) and str(int(value)) == value
    return isinstance(value, int)


def without_fraction(value: Any) -> Any:
    """Returns a float such as 1.0, also as text, as an integer, and any other value unchanged.

    A column of integers that lacks a value becomes one of floats in pandas.

    >>> without_fraction("1.0"), without_fraction(1.0), without_fraction("1.5")
    (1, 1, '1.5')
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGRAL.fullmatch(value):
        return int(value.partition(".")[0])
    return value


def looks_number(text: str) -> bool:
    """Returns whether a text is a float32, and not an identifier with leading zeros."""
    number = bool(_NUMBER.fullmatch(text)) and not re.match(r"[+-]?0\d", text)
    return number and not abs(float(text)) > FLOAT32_MAX


def are_rounded(values: Sequence[Any]) -> bool:
    """Returns whether float32 changes an integer, or that of a float; both may be text."""
    limits = {int: 2**64, float: 2**53}
    texts = _MANY_DIGITS.findall("\n".join(value for value in values if isinstance(value, str)))
    numbers = [float(text) if "." in text else int(text) for text in texts]
    numbers += [value for value in values if type(value) in limits]
    return any(2**24 <= abs(n) < limits[type(n)] and float(np.float32(n)) != n for n in numbers)


def number_form(text: str) -> str:
    """Returns how a number is written: integer, grouped (1.234), comma, decimal; or text."""
    forms = {"integer": _INTEGER, "grouped": _GROUPED, "comma": _COMMA, "decimal": _DECIMAL}
    return next((name for name, form in forms.items() if form.fullmatch(text.strip())), "text")


def number_score(texts: Sequence[str]) -> int:
    """Returns the score of texts, which is positive if they may be numbers as people write."""
    found = _like_numbers(texts)
    ids, missing = (sum(bool(marks[i]) for marks in found) for i in (0, 1))
    others = len(texts) - texts.count("") - len(found)
    return NUMBER * (len(found) - ids - missing) + _ID * ids + _MISSING * missing + _TEXT * others


def _like_numbers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the identifier or mark of each text that is one, or two "" for one like a number."""
    lines = "\n".join(texts)
    if lines.count("\n") >= len(texts) > 0:
        return _like_numbers([text for text in texts if "\n" not in text])
    return _LIKE_NUMBERS.findall(lines)


def looks_boolean(text: str) -> bool:
    """Returns whether a text is true or false."""
    return text.lower() in _BOOLEANS


def _items_of_one(value: Any, feature: Feature, is_text: bool) -> list[Any]:
    if is_missing(value, feature, is_text):
        return []
    if isinstance(value, list | tuple) or (is_text and isinstance(value, str)):
        return items_of(value, feature, is_text)
    return [value]


def _items_of_text(text: str, feature: Feature) -> list[Any]:
    if not text:
        return []
    if not text.startswith("["):
        return text.split(feature.separator)
    try:
        items = parse_json(text)
    except ValueError as error:
        raise _wrong_type(text, "a JSON array") from error
    return list(items)


def _wrong_type(value: Any, expected: str) -> RecordError:
    return RecordError(Reason.WRONG_TYPE, f"expected {expected}, got {short_repr(value)}")


def size_of_values(values: Iterable[Any]) -> int:
    """Returns the approximate size of values in bytes, at any depth of lists."""
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        else:
            size += size_of_values(value) if isinstance(value, list) else _NUMBER_BYTES
    return size


def short_repr(value: Any) -> str:
    """Returns the `repr` of a value for messages, truncated if it is long."""
    return shortened(value, _SHOWN)


# Numbers far from the limits of int64 and float32, each followed by a line break.
_INTEGERS = re.compile(r"(?:(?:0|-?[1-9][0-9]{0,17})\n)+")
_FLOATS = re.compile(r"(?:-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,20}(?:e-[0-9]{1,2})?\n)+")


def plain_column(values: Sequence[Any], kind: Kind, is_text: bool) -> list[Any] | None:
    """Returns the values of a feature without a shape or classes; None if they are not plain."""
    types = set(map(type, values))
    if kind is Kind.BYTES:
        return _texts(values) if types == {str} else list(values) if types == {bytes} else None
    if is_text and types == {str}:
        found = plain_type(values)
        if kind is Kind.FLOAT and found is not None:
            return _rounded(list(map(float, values)))
        return list(map(int, values)) if found == "int" else None
    if kind is Kind.FLOAT and types == {float}:
        return _rounded(values)
    if kind is Kind.INT64 and types == {int} and -(2**63) <= min(values) <= max(values) < 2**63:
        return list(values)
    return None


def plain_type(texts: Sequence[str]) -> str | None:
    """Returns "int" or "float" if all texts, one at least, are such numbers; None otherwise."""
    lines = "\n".join(texts) + "\n"  # one match for all texts is faster than one for each
    if lines.count("\n") > len(texts):
        return None
    if _INTEGERS.fullmatch(lines):
        return "int"
    return "float" if _FLOATS.fullmatch(lines) else None


def are_plain_keys(values: Sequence[Any]) -> TypeGuard[Sequence[str]]:
    """Returns whether all values are text that is not empty and can be encoded."""
    return set(map(type, values)) == {str} and all(values) and _texts(values) is not None


def distinct(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the distinct values if all are text or all are integers, else all values.

    Values of several types can be equal, such as 1, 1.0 and True.
    """
    return list(dict.fromkeys(values)) if set(map(type, values)) in ({str}, {int}) else values


def by_value(function: Callable[[Any], _T], values: Sequence[Any]) -> list[_T]:
    """Returns the results of a function of values, which is called once for equal ones."""
    unlike = distinct(values)
    if len(unlike) == len(values):
        return [function(value) for value in values]
    found = {value: function(value) for value in unlike}
    return [found[value] for value in values]


def _texts(values: Sequence[str]) -> list[bytes] | None:
    with suppress(UnicodeEncodeError):
        return [value.encode() for value in values]
    return None


def _rounded(values: Sequence[float]) -> list[float] | None:
    """Returns numbers rounded to float32; None if one is infinite, or becomes so."""
    with np.errstate(over="ignore"):
        rounded = np.array(values, np.float64).astype(np.float32)
    return list(rounded.tolist()) if np.isfinite(rounded).all() else None
