"""Columns of plain values are converted as their values are one by one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.origins import Kind
from recordmill.schemas.records import Row
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.values.typed import (
    CONVERTERS,
    are_plain_keys,
    distinct,
    plain_column,
    plain_type,
)

NUMBERS = st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,21})?(e-?[0-9]{1,3})?", fullmatch=True)
TEXTS = NUMBERS | st.integers().map(str) | st.floats().map(str) | st.text(max_size=3)
COLUMNS = st.one_of(
    *(
        st.lists(values, min_size=1, max_size=4)
        for values in (
            TEXTS,
            NUMBERS,
            st.integers(-(10**18), 10**18).map(str),
            st.floats(-1e9, 1e9).map(str),
            st.floats(),
            st.integers(-(2**65), 2**65),
            st.binary(max_size=2),
            st.sampled_from([1, True, 1.0, "1", None, b"1"]),
            st.sampled_from(["1\n2", "1\n", "1", "\ud800"]),
        )
    )
)


def exact(values):
    """Returns the type and bits of each value."""
    return [struct.pack("<d", v) if isinstance(v, float) else (type(v), v) for v in values]


@given(COLUMNS, st.sampled_from(Kind), st.booleans())
def test_plain_columns_are_converted_as_their_values(values, kind, is_text):
    found = plain_column(values, kind, is_text)
    if found is not None:
        assert exact(found) == exact([CONVERTERS[kind](value, is_text) for value in values])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["0", "-7", "9" * 18], Kind.INT64, [0, -7, 10**18 - 1]),
        (["0.5", "-123.25", "1.5e-05"], Kind.FLOAT, [0.5, -123.25, 1.4999999621068127e-05]),
        (["3", "4"], Kind.FLOAT, [3.0, 4.0]),
        (["ä", ""], Kind.BYTES, [b"\xc3\xa4", b""]),
        (["1", "true"], Kind.INT64, None),
        (["1", "007"], Kind.INT64, None),
        (["1.5"], Kind.INT64, None),
        (["1", None], Kind.INT64, None),
        (["\ud800"], Kind.BYTES, None),
        (["1\n2"], Kind.INT64, None),
    ],
)
def test_numbers_and_texts_are_plain(values, kind, expected):
    assert plain_column(values, kind, is_text=True) == expected


def test_typed_numbers_within_range_are_plain():
    assert plain_column([2**63 - 1, -(2**63)], Kind.INT64, False) == [2**63 - 1, -(2**63)]
    assert plain_column([2**63], Kind.INT64, False) is None
    assert plain_column([True], Kind.INT64, False) is None
    assert plain_column([0.1], Kind.FLOAT, False) == [0.10000000149011612]
    assert plain_column([1e39], Kind.FLOAT, False) is None
    assert plain_column([b"x"], Kind.BYTES, False) == [b"x"]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_the_plain_type_is_that_of_each_text(texts):
    if plain := plain_type(texts):
        for text in texts:
            kinds = ColumnKinds()
            kinds.add([Row({"c": text}, "t", 1, True)])
            if "\n" not in text:
                assert kinds.seen == {"c": {plain}}


def test_values_that_are_equal_and_differ_are_all_distinct():
    assert distinct(["b", "a", "b"]) == ["b", "a"]
    assert distinct([2, 1, 2]) == [2, 1]
    for values in ([1, 1.0, True], [0.0, -0.0], [[1], [1]], [None, None]):
        assert distinct(values) is values


def test_keys_are_plain_if_they_are_text():
    assert are_plain_keys(["a", "ü"])
    for other in ("", None, 7, b"a", "\ud800"):
        assert not are_plain_keys(["a", other])
