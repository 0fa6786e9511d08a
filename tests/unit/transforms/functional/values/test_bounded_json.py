"""JSON that is parsed strictly, and documents whose nesting is cut off."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.values.bounded_json import (
    MAX_DEPTH,
    BoundedNesting,
    check_depth,
    outline_of,
    parse_json,
)

TEXTS = st.text() | st.text(alphabet='"\\\\[]{},:ü')
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def cut(value, levels):
    """Returns a value with a 0 in place of what is deeper."""
    if not isinstance(value, list | dict):
        return value
    if not levels:
        return 0
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value]
    return {name: cut(item, levels - 1) for name, item in value.items()}


@given(VALUES, st.booleans(), st.integers(0, 4), st.integers(1, 20))
def test_nesting_is_cut_off_wherever_chunks_end(value, ascii_, levels, chunk):
    data = json.dumps(value, ensure_ascii=ascii_).encode("utf-8", "replace")
    bounded = BoundedNesting(io.BytesIO(data), levels)
    found = b"".join(iter(lambda: bounded.read(chunk), b""))
    assert json.loads(found) == cut(json.loads(data), levels)


@given(VALUES)
def test_the_outline_of_a_document_lacks_what_is_within_its_values(value):
    document = {"images": value, "n": 1}
    expected = {"images": type(value)() if isinstance(value, list | dict) else value, "n": 1}
    assert outline_of(io.BytesIO(json.dumps(document).encode())) == expected


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1, "a": 2}', b'{"a": [}', b"\xff", b"{}{}"])
def test_what_is_no_document_has_no_outline(data):
    with pytest.raises(ValueError, match=r".+"):
        outline_of(io.BytesIO(data))


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_as_many_levels_as_there_may_be(brackets):
    def nested(depth):
        opening = "[" if brackets == "[]" else '{"a":'
        return opening * depth + "0" + brackets[1] * depth

    assert parse_json(nested(MAX_DEPTH)) == json.loads(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(ValueError, match="nested too deeply: more than 64"):
            parse_json(nested(depth))


def test_any_number_of_lists_beside_each_other_is_no_depth():
    check_depth([[[]] * 1000] * 1000)


@pytest.mark.parametrize("text", ["1e400", "[-1e999]", '{"a": 1, "a": 1}', "9" * 5000, "[1", ""])
def test_what_is_rejected(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
