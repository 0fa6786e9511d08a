"""Tests of the kinds inferred for columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, Missing
from recordmill.schemas.origins import Kind
from recordmill.schemas.records import Row
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.values.typed import CONVERTERS, is_missing

TEXT, TYPED = True, False
INT, FLOAT, BYTES = Kind.INT64, Kind.FLOAT, Kind.BYTES
ABSENT = object()


def kinds_of(values, is_text):
    kinds = ColumnKinds()
    for value in values:
        kinds.add([Row({} if value is ABSENT else {"c": value}, "t", 1, is_text)])
    return kinds


def feature(kind, shape=None, missing=Missing.REQUIRED):
    return Feature(kind=kind, sources="column:c", shape=shape, missing=missing)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(["1", "-2"], feature(INT), id="integers"),
        pytest.param(["0", "1"], feature(INT), id="zero and one"),
        pytest.param(["true", "FALSE"], feature(INT), id="booleans"),
        pytest.param(["true", "2"], feature(INT), id="booleans and integers"),
        pytest.param(["1.5", "2"], feature(FLOAT), id="floats and integers"),
        pytest.param(["1e3", ".5", "nan"], feature(FLOAT), id="every way to write a float"),
        pytest.param(["a", "2"], feature(BYTES), id="text and integers"),
        pytest.param(["true", "1.5"], feature(BYTES), id="a boolean is no float"),
        pytest.param(["true", "2", "1.5"], feature(BYTES), id="nor beside integers"),
        pytest.param(["007", "008"], feature(BYTES), id="leading zeros identify"),
        pytest.param(["7", "08"], feature(BYTES), id="one leading zero makes it text"),
        pytest.param(["9223372036854775807"], feature(INT), id="the largest integer"),
        # As a float32 it would be another number, and two such identifiers the same.
        pytest.param(["9223372036854775808", "1"], feature(BYTES), id="beyond 64 bits it is text"),
        pytest.param(["1" * 30], feature(BYTES), id="far beyond 64 bits, too"),
        pytest.param(["1e400", "1.5"], feature(BYTES), id="what no double holds is text"),
        pytest.param(["1e300", "1.5"], feature(BYTES), id="what no float32 holds is text"),
        pytest.param(["inf", "1.5"], feature(BYTES), id="inf is a word"),
        pytest.param([" 1", "2"], feature(BYTES), id="white space makes text"),
        pytest.param(["1_000"], feature(BYTES), id="underscores make text"),
        pytest.param(["1", ""], feature(INT, missing=Missing.EMPTY), id="an empty field"),
        pytest.param(["1", "  "], feature(INT, missing=Missing.EMPTY), id="a field of blanks"),
        pytest.param(["1", ABSENT], feature(INT, missing=Missing.EMPTY), id="an absent field"),
        pytest.param(["a", ""], feature(BYTES), id="empty text is text"),
        pytest.param(["", ""], feature(BYTES), id="nothing but empty fields"),
        pytest.param(["a", ABSENT], feature(BYTES, missing=Missing.EMPTY), id="text that lacks"),
    ],
)
def test_untyped_text(values, expected):
    assert kinds_of(values, TEXT).features() == {"c": expected}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, -2], feature(INT), id="integers"),
        pytest.param([True, False], feature(INT), id="booleans"),
        pytest.param([True, 2], feature(INT), id="booleans and integers"),
        pytest.param([1.5, 2], feature(FLOAT), id="floats and integers"),
        # Bytes would hold none of these values: every row would be a reject.
        pytest.param([True, 2, 1.5], feature(FLOAT), id="booleans, integers and floats"),
        pytest.param(["1", "2"], feature(BYTES), id="text stays text"),
        pytest.param([b"x"], feature(BYTES), id="bytes"),
        pytest.param([1, None], feature(INT, missing=Missing.EMPTY), id="null"),
        pytest.param([1, ABSENT], feature(INT, missing=Missing.EMPTY), id="absent"),
        pytest.param([None, None], feature(BYTES, missing=Missing.EMPTY), id="nothing but nulls"),
        pytest.param([[1], [2, 3], []], feature(INT, ()), id="lists"),
        pytest.param([[1], [2.5]], feature(FLOAT, ()), id="lists of floats and integers"),
        pytest.param([["a"], None], feature(BYTES, (), Missing.EMPTY), id="lists and null"),
        pytest.param([[], []], feature(BYTES, ()), id="empty lists alone"),
        # One null would make text of all other rows' numbers, which no text feature takes.
        pytest.param([[1.5, None], [2.5]], feature(FLOAT, ()), id="null within a list"),
    ],
)
def test_typed_values(values, expected):
    assert kinds_of(values, TYPED).features() == {"c": expected}


def test_columns_are_sorted_by_name():
    kinds = ColumnKinds()
    kinds.add([Row({"b": "1", "a": "x", "C": ""}, "t", 1, TEXT)])
    assert list(kinds.features()) == ["C", "a", "b"]


FIELD = st.sampled_from(["", " ", "0", "7", "007", "1.5", "true", "x", "1e300", "nan", "9" * 19])


@given(
    st.lists(FIELD | st.from_regex(r"[+-]?[0-9.e]{1,22}", fullmatch=True), min_size=1, max_size=4)
)
@settings(max_examples=100)
def test_every_field_of_a_text_column_fits_the_inferred_kind(fields):
    (found,) = kinds_of(fields, TEXT).features().values()
    for field in fields:
        if is_missing(field, found, TEXT):
            assert found.missing is Missing.EMPTY
        else:
            CONVERTERS[found.kind](field, TEXT)  # raises where the kind does not hold it


ROW = st.dictionaries(
    st.sampled_from("abc"),
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats()
    | FIELD
    | st.lists(st.integers(0, 9)),
)


@given(
    st.lists(st.tuples(ROW, st.booleans())), st.randoms(use_true_random=False), st.integers(1, 4)
)
@settings(max_examples=60)
def test_parts_can_be_merged_in_any_order(rows, random, parts):
    whole = ColumnKinds()
    for values, is_text in rows:
        whole.add([Row(values, "t", 1, is_text)])
    random.shuffle(rows)
    pieces = [ColumnKinds() for _ in range(parts)]
    for i, piece in enumerate(pieces):
        for text in (TEXT, TYPED):
            if batch := [
                Row(values, "t", 1, text) for values, own in rows[i::parts] if own is text
            ]:
                piece.add(batch)
    assert ColumnKinds.sum_of(pieces).features() == whole.features()
