"""Tests of the strict conversion of values."""

from __future__ import annotations

import math
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import Feature
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.values.typed import (
    _to_float,
    is_missing,
    items_of,
    looks_boolean,
    looks_integer,
    looks_number,
    to_bytes,
    to_int64,
)

TEXT, TYPED = True, False


class _Rejected:
    def __repr__(self):  # names tests, the same in every process that runs some of them
        return "rejected"


REJECTED = _Rejected()


def outcome(convert, value, is_text):
    """Returns the converted value, or REJECTED for the reason wrong_type."""
    try:
        return convert(value, is_text)
    except RecordError as error:
        rejected = error
    assert rejected.reason is Reason.WRONG_TYPE
    assert rejected.detail, "a message for a person"
    return REJECTED


def table(*cases):
    return [
        pytest.param(*case, id=f"{'text' if case[1] else 'typed'} {case[0]!r}"[:60])
        for case in cases
    ]


@pytest.mark.parametrize(
    ("value", "is_text", "expected"),
    table(
        ("7", TEXT, 7),
        (" 7 ", TEXT, 7),
        ("007", TEXT, 7),
        ("+5", TEXT, 5),
        ("-0", TEXT, 0),
        ("0", TEXT, 0),
        ("true", TEXT, 1),
        ("False", TEXT, 0),
        ("TRUE", TEXT, 1),
        ("9223372036854775807", TEXT, 2**63 - 1),
        ("-9223372036854775808", TEXT, -(2**63)),
        ("9223372036854775808", TEXT, REJECTED),
        ("-9223372036854775809", TEXT, REJECTED),
        ("9" * 5000, TEXT, REJECTED),
        ("1.5", TEXT, REJECTED),
        ("1.0", TEXT, REJECTED),
        ("1e3", TEXT, REJECTED),
        ("1_000", TEXT, REJECTED),
        ("1 000", TEXT, REJECTED),
        ("1,000", TEXT, REJECTED),
        ("0x10", TEXT, REJECTED),
        ("nan", TEXT, REJECTED),
        ("１２", TEXT, REJECTED),
        ("²", TEXT, REJECTED),
        ("yes", TEXT, REJECTED),
        ("", TEXT, REJECTED),
        (" ", TEXT, REJECTED),
        (7, TYPED, 7),
        (0, TYPED, 0),
        (True, TYPED, 1),
        (False, TYPED, 0),
        (2**63 - 1, TYPED, 2**63 - 1),
        (-(2**63), TYPED, -(2**63)),
        (2**63, TYPED, REJECTED),
        (-(2**63) - 1, TYPED, REJECTED),
        (1.0, TYPED, REJECTED),
        (1.5, TYPED, REJECTED),
        (math.nan, TYPED, REJECTED),
        ("7", TYPED, REJECTED),
        ("true", TYPED, REJECTED),
        (b"7", TYPED, REJECTED),
        ([7], TYPED, REJECTED),
        (None, TYPED, REJECTED),
    ),
)
def test_int64(value, is_text, expected):
    found = outcome(to_int64, value, is_text)
    assert found == expected
    assert found is REJECTED or type(found) is int


@given(st.integers(-(2**64), 2**64))
def test_int64_accepts_exactly_64_bits(number):
    expected = number if -(2**63) <= number <= 2**63 - 1 else REJECTED
    assert outcome(to_int64, str(number), TEXT) == expected
    assert outcome(to_int64, number, TYPED) == expected


@given(st.text())
def test_int64_text_is_ascii_digits_with_a_sign_or_a_boolean(text):
    stripped = text.strip()
    is_integer = re.fullmatch(r"[+-]?[0-9]{1,18}", stripped)
    if stripped.lower() in ("true", "false"):
        assert outcome(to_int64, text, TEXT) == (stripped.lower() == "true")
    elif is_integer:
        assert outcome(to_int64, text, TEXT) == int(stripped)
    elif not re.fullmatch(r"[+-]?[0-9]+", stripped):
        assert outcome(to_int64, text, TEXT) is REJECTED


def bits(number):
    """Returns the bits of a double, which distinguish -0.0 from 0.0 and nan from a number."""
    return "nan" if math.isnan(number) else struct.pack("<d", number)


@pytest.mark.parametrize(
    ("value", "is_text", "expected"),
    table(
        ("1.5", TEXT, 1.5),
        (" 1.5 ", TEXT, 1.5),
        ("1", TEXT, 1.0),
        (".5", TEXT, 0.5),
        ("5.", TEXT, 5.0),
        ("-0", TEXT, -0.0),
        ("1e3", TEXT, 1000.0),
        ("1E-3", TEXT, float(np.float32(0.001))),
        ("0.1", TEXT, float(np.float32(0.1))),
        ("nan", TEXT, math.nan),
        ("NaN", TEXT, math.nan),
        ("inf", TEXT, math.inf),
        ("-Infinity", TEXT, -math.inf),
        ("3.4028235e38", TEXT, float(np.finfo(np.float32).max)),
        ("3.4028236e38", TEXT, REJECTED),
        ("1e300", TEXT, REJECTED),
        ("1e400", TEXT, REJECTED),  # a double takes it for infinity, which nobody wrote
        ("-1e400", TEXT, REJECTED),
        ("9" * 400, TEXT, REJECTED),
        ("1_000.0", TEXT, REJECTED),
        ("1_000", TEXT, REJECTED),
        ("1,5", TEXT, REJECTED),
        ("0x1p3", TEXT, REJECTED),
        ("１", TEXT, REJECTED),
        ("true", TEXT, REJECTED),
        ("", TEXT, REJECTED),
        (".", TEXT, REJECTED),
        ("e5", TEXT, REJECTED),
        (0.1, TYPED, float(np.float32(0.1))),
        (0, TYPED, 0.0),
        (7, TYPED, 7.0),
        (-0.0, TYPED, -0.0),
        (math.nan, TYPED, math.nan),
        (math.inf, TYPED, math.inf),
        (1e-46, TYPED, 0.0),
        (1e300, TYPED, REJECTED),
        (10**400, TYPED, REJECTED),
        (True, TYPED, REJECTED),
        ("1.5", TYPED, REJECTED),
        (b"1.5", TYPED, REJECTED),
        (None, TYPED, REJECTED),
        ([1.5], TYPED, REJECTED),
    ),
)
def test_float(value, is_text, expected):
    found = outcome(_to_float, value, is_text)
    if expected is REJECTED or found is REJECTED:
        assert found is expected
    else:
        assert type(found) is float
        assert bits(found) == bits(expected)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_round_as_numpy_rounds_and_never_become_infinite(number):
    with np.errstate(over="ignore"):
        rounded = np.float32(number)
    found = outcome(_to_float, number, TYPED)
    if np.isinf(rounded):
        assert found is REJECTED
    else:
        assert bits(found) == bits(float(rounded))
    as_text = outcome(_to_float, repr(number), TEXT)
    assert as_text is REJECTED if found is REJECTED else bits(as_text) == bits(found)


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_comes_through_unchanged(number):
    assert bits(_to_float(number, TYPED)) == bits(number)


@pytest.mark.parametrize("is_text", [TEXT, TYPED], ids=["text", "typed"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", b""),
        (" a ", b" a "),
        ("0", b"0"),
        ("Zoë 🐈", b"Zo\xc3\xab \xf0\x9f\x90\x88"),
        ("a\0b", b"a\0b"),
        (b"", b""),
        (b"\xff\xfe\0", b"\xff\xfe\0"),
        ("\ud83d", REJECTED),
        ("a\udcffb", REJECTED),
        (7, REJECTED),
        (1.5, REJECTED),
        (True, REJECTED),
        (None, REJECTED),
        (["a"], REJECTED),
        ({"a": 1}, REJECTED),
    ],
    ids=repr,
)
def test_bytes(value, is_text, expected):
    assert outcome(to_bytes, value, is_text) == expected


def test_long_values_are_truncated_in_messages():
    with pytest.raises(RecordError) as raised:
        to_int64("x" * 10_000, TEXT)
    assert raised.value.detail == f"expected an int64, got '{'x' * 79}…"


def list_feature(separator="|", kind="bytes", shape=()):
    return Feature(kind=kind, sources="column:a", shape=shape, separator=separator)


@pytest.mark.parametrize(
    ("value", "is_text", "expected"),
    table(
        ("a|b", TEXT, ["a", "b"]),
        ("a", TEXT, ["a"]),
        ("a|", TEXT, ["a", ""]),
        ("a| b", TEXT, ["a", " b"]),
        (" a|b ", TEXT, ["a", "b"]),
        ("", TEXT, []),
        ("  ", TEXT, []),
        ('["a|b", "c"]', TEXT, ["a|b", "c"]),
        ("[1, 2.5, true]", TEXT, [1, 2.5, True]),
        ("[]", TEXT, []),
        (" [1] ", TEXT, [1]),
        ('["\\ud83d"]', TEXT, ["\ud83d"]),
        ("[1", TEXT, REJECTED),
        ("[1]]", TEXT, REJECTED),
        ("[a|b]", TEXT, REJECTED),
        ("[" * 100_000, TEXT, REJECTED),
        ([1, 2], TYPED, [1, 2]),
        ((1, 2), TYPED, [1, 2]),
        ([], TYPED, []),
        ("a|b", TYPED, REJECTED),
        ('["a"]', TYPED, REJECTED),
        (7, TYPED, REJECTED),
        ({"a": 1}, TYPED, REJECTED),
        (b"ab", TYPED, REJECTED),
    ),
)
def test_items(value, is_text, expected):
    found = outcome(lambda v, t: items_of(v, list_feature(), t), value, is_text)
    assert found == expected


@pytest.mark.parametrize(
    ("value", "separator", "said"),
    [
        ("a|b", "|", "expected a list, such as ['a', 'b'], got 'a|b'"),
        ("a|b", ";", "expected a list, such as ['a|b'], got 'a|b'"),
        (b"a|b", "|", "expected a list, got b'a|b'"),
        (7, "|", "expected a list, got 7"),
    ],
)
def test_a_typed_text_is_shown_as_a_list(value, separator, said):
    with pytest.raises(RecordError) as caught:
        items_of(value, list_feature(separator=separator), TYPED)
    assert caught.value.detail == said


def test_items_are_split_at_the_separator_of_the_feature():
    assert items_of("a|b; c", list_feature(separator="; "), TEXT) == ["a|b", "c"]


SINGLE_INT, SINGLE_BYTES, LIST_INT = "int", "bytes", "list"
FEATURES = {
    SINGLE_INT: Feature(kind="int64", sources="column:a"),
    SINGLE_BYTES: Feature(kind="bytes", sources="column:a"),
    LIST_INT: list_feature(kind="int64"),
}


@pytest.mark.parametrize(
    ("value", "feature", "is_text", "expected"),
    [
        (None, SINGLE_INT, TEXT, True),
        (None, SINGLE_BYTES, TYPED, True),
        (None, LIST_INT, TYPED, True),
        ("", SINGLE_INT, TEXT, True),
        ("  ", SINGLE_INT, TEXT, True),
        ("", SINGLE_BYTES, TEXT, False),
        ("", SINGLE_BYTES, TYPED, False),
        ("", SINGLE_INT, TYPED, False),  # of the wrong type, but there
        ("", LIST_INT, TEXT, False),  # the empty list
        ([], LIST_INT, TYPED, False),
        ("0", SINGLE_INT, TEXT, False),
        (0, SINGLE_INT, TYPED, False),
        (False, SINGLE_INT, TYPED, False),
        ("nan", SINGLE_INT, TEXT, False),
        ("null", SINGLE_INT, TEXT, False),
        (b"", SINGLE_BYTES, TYPED, False),
    ],
    ids=str,
)
def test_missing(value, feature, is_text, expected):
    assert is_missing(value, FEATURES[feature], is_text) is expected


@pytest.mark.parametrize(
    ("value", "is_text", "expected"),
    table(
        ("7", TEXT, True),
        ("-7", TEXT, True),
        ("0", TEXT, True),
        ("007", TEXT, False),
        ("+7", TEXT, False),
        ("-0", TEXT, False),
        (" 7", TEXT, False),
        ("7.0", TEXT, False),
        ("1_000", TEXT, False),
        ("７", TEXT, False),
        ("", TEXT, False),
        ("true", TEXT, False),
        ("9" * 5000, TEXT, False),
        (7, TYPED, True),
        (True, TYPED, True),
        ("7", TYPED, False),
        (7.0, TYPED, False),
        (None, TYPED, False),
    ),
)
def test_looks_integer(value, is_text, expected):
    assert looks_integer(value, is_text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5", True),
        ("-1e-5", True),
        (".5", True),
        ("0", True),
        ("0.5", True),
        ("nan", True),
        ("inf", False),
        ("1e400", False),
        ("007", False),
        ("-01.5", False),
        ("1_000", False),
        ("1.5 ", False),
        ("", False),
        ("abc", False),
    ],
)
def test_looks_number(text, expected):
    assert looks_number(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("FALSE", True), ("True", True), ("yes", False), ("1", False), ("", False)],
)
def test_looks_boolean(text, expected):
    assert looks_boolean(text) is expected


@pytest.mark.parametrize("text", ["[1e400]", "[-1e400, 1]", "[[0.5, 1e309]]"])
def test_numbers_in_lists_are_limited_to_the_range_of_floats(text):
    feature = Feature.model_validate({"kind": "float", "from": "column:x", "shape": []})
    with pytest.raises(RecordError) as rejected:
        items_of(text, feature, TEXT)
    assert rejected.value.reason is Reason.WRONG_TYPE
