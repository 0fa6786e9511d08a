"""Tests of strict JSON parsing, and of documents with limited nesting."""

from __future__ import annotations

import io
import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.values import documents
from recordmill.transforms.functional.values.documents import (
    MAX_DEPTH,
    _nested_chunks,
    entries_of,
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
    """Returns a value in which deeper values are replaced by 0."""
    if not isinstance(value, list | dict):
        return value
    if not levels:
        return 0
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value]
    return {name: cut(item, levels - 1) for name, item in value.items()}


@given(VALUES, st.booleans(), st.integers(0, 4), st.integers(1, 20))
def test_nesting_is_limited_for_any_chunk_size(value, ascii_, levels, chunk):
    data = json.dumps(value, ensure_ascii=ascii_).encode("utf-8", "replace")
    found = b"".join(c.bounded(levels) for c in _nested_chunks(io.BytesIO(data), chunk))
    assert json.loads(found) == cut(json.loads(data), levels)


@given(VALUES)
def test_the_outline_of_a_document_has_empty_lists_and_objects(value):
    document = {"images": value, "n": 1}
    expected = {"images": type(value)() if isinstance(value, list | dict) else value, "n": 1}
    assert outline_of(io.BytesIO(json.dumps(document).encode())) == expected


def entries(data, *names, is_checked=True):
    return [(name, value) for name, value, _ in entries_of(io.BytesIO(data), names, is_checked)]


@given(
    st.dictionaries(TEXTS, VALUES, max_size=5),
    st.lists(VALUES, max_size=4),
    st.booleans(),
    st.integers(1, 20),
)
def test_entries_of_lists_for_any_chunk_size(others, listed, first, chunk):
    others = {name: value for name, value in others.items() if name != "images"}
    lists = {"images": listed, "categories": [1, "2"]}
    document = {**lists, **others} if first else {**others, **lists}
    data = json.dumps(document).encode()
    with patch.object(documents, "_PARSED_BYTES", chunk):
        assert entries(data, "images") == [("images", entry) for entry in listed]
        both = entries(b"\xef\xbb\xbf" + data, "images", "categories")
        unchecked = entries(data, "images", is_checked=False)
        assert outline_of(io.BytesIO(data)) == {
            name: type(value)() if isinstance(value, list | dict) else value
            for name, value in document.items()
        }
    assert both == [(name, entry) for name, found in lists.items() for entry in found]
    assert unchecked == [("images", entry) for entry in listed]


def test_only_top_level_lists_have_entries():
    assert entries(b'{"a": {"item": 1, "a": [2]}, "b": [[3]], "c": "a[", "d": 5}', "a", "c") == []
    assert entries(b'{"a": [], "b": [1], "a]": [[2], {"a": [3]}]}', "a", "a]") == [
        ("a]", [2]),
        ("a]", {"a": [3]}),
    ]
    assert entries(b'{"b": {"\\u0000": 1}, "a": [2]}', "a") == [("a", 2)]
    assert entries(b'[{"a": [1]}]', "a") == entries(b"[[1], [2]]", "a") == []


@pytest.mark.parametrize(
    "text", [b"nan", b"1 2", b"1,", b'{"x": 1,}', b'"\xff"', b'{"x" 1}', b'{"x": [1}]', b"01"]
)
@pytest.mark.parametrize("place", [b'{"a": [%b]}', b'{"a": [1], "b": [%b]}', b'{"b": {"c": [%b]}}'])
def test_entries_of_a_damaged_document_raise_an_error(text, place):
    with pytest.raises(ValueError, match=r".+"):
        entries(place % text, "a")


def test_values_nested_too_deeply_are_replaced():
    depth = 100_000
    data = b'{"a": [' + b"[" * depth + b"]" * depth + b", 1]}"
    (deep, other) = entries_of(io.BytesIO(data), ["a"])
    assert deep.fault.startswith("nested too deeply")
    assert other == ("a", 1, "")


@given(st.lists(VALUES, max_size=4), st.data(), st.integers(1, 20))
def test_changed_documents_have_the_entries_that_python_finds_or_an_error(listed, data, chunk):
    text = json.dumps({"b": [], "a": listed, "c": {"a": listed}})
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, start + 2))
    text = text[:start] + data.draw(st.sampled_from([*', :[]{}"\\0n\x0b\ud800', ""])) + text[stop:]
    try:
        pairs = json.loads(text.encode(), object_pairs_hook=list)
        document, is_ambiguous = json.loads(text.encode()), len(dict(pairs)) < len(pairs)
    except ValueError:
        is_ambiguous = True
    with patch.object(documents, "_PARSED_BYTES", chunk):
        if is_ambiguous:
            with pytest.raises(ValueError, match=r".+"):
                entries(text.encode(), "a")
            return
        found = entries(text.encode(), "a")
    expected = document.get("a", []) if isinstance(document, dict) else []
    assert [value for _, value in found] == (expected if isinstance(expected, list) else [])


def test_an_entry_is_limited_and_numbers_are_those_of_python(monkeypatch):
    assert entries(b'{"a": [123456789012345678901, 1E5, -0]}', "a") == [
        ("a", 123456789012345678901),
        ("a", 1e5),
        ("a", 0),
    ]
    monkeypatch.setattr(documents, "_PARSED_BYTES", 7)
    monkeypatch.setattr(documents, "_MAX_ENTRY", 100)
    (entry,) = entries(b'{"a": ["%b"]}' % (b"9" * 90), "a")
    assert entry == ("a", "9" * 90)
    with pytest.raises(ValueError, match="an entry has more than 100 bytes"):
        entries(b'{"a": ["%b"]}' % (b"9" * 300), "a")


def test_names_of_lists_may_be_escaped_and_what_is_around_them_is_limited(monkeypatch):
    assert entries(b'{"x": "a\\": [", "\\u0061" : [1], "b\\"": [2]}', "a", 'b"') == [
        ("a", 1),
        ('b"', 2),
    ]
    monkeypatch.setattr(documents, "_MAX_OUTLINE", 100)
    monkeypatch.setattr(documents, "_PARSED_BYTES", 7)
    assert entries(b'{"x": "%b", "a": [1]}' % (b"9" * 80), "a") == [("a", 1)]
    with pytest.raises(ValueError, match="top-level strings and numbers have more than 100 bytes"):
        entries(b'{"x": "%b", "a": [1]}' % (b"9" * 90), "a")


def test_entries_with_a_name_twice_are_marked():
    data = b'{"a": [{"x": 1, "x": 2}, {"x": {"y": 1, "y": 2}}, {"x": 3}]}'
    faults = [fault for _, _, fault in entries_of(io.BytesIO(data), ["a"])]
    assert faults == [
        "the name 'x' occurs twice",
        "the name 'y' occurs twice",
        "",
    ]


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1, "a": 2}', b'{"a": [}', b"\xff", b"{}{}"])
def test_invalid_documents_have_no_outline(data):
    with pytest.raises(ValueError, match=r".+"):
        outline_of(io.BytesIO(data))


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_the_depth_limit_is_inclusive(brackets):
    def nested(depth):
        opening = "[" if brackets == "[]" else '{"a":'
        return opening * depth + "0" + brackets[1] * depth

    assert parse_json(nested(MAX_DEPTH)) == json.loads(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(ValueError, match="nested too deeply: more than 64"):
            parse_json(nested(depth))


def test_adjacent_lists_do_not_count_as_depth():
    value = [[[]] * 1000] * 1000
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["1e400", "[-1e999]", '{"a": 1, "a": 1}', "9" * 5000, "[1", ""])
def test_invalid_json_is_rejected(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
