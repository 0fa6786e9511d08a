"""Tests of strict JSON parsing, and of documents with limited nesting."""

from __future__ import annotations

import io
import json
from unittest.mock import patch

import ijson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.values import documents
from recordmill.transforms.functional.values.documents import (
    MAX_DEPTH,
    _nested_chunks,
    entries_of,
    fault_of,
    outline_of,
    parse_json,
    values_at,
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


def entries(data, *names):
    stream = io.BytesIO(data)
    return list(entries_of(stream, outline_of(stream), names))


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
    assert both == [(name, entry) for name, found in lists.items() for entry in found]


def test_only_top_level_lists_have_entries():
    assert entries(b'{"a": {"item": 1, "a": [2]}, "b": [[3]], "c": "a[", "d": 5}', "a", "c") == []
    assert entries(b'{"a": [], "b": [1], "a]": [[2], {"a": [3]}]}', "a", "a]") == [
        ("a]", [2]),
        ("a]", {"a": [3]}),
    ]
    assert entries(b'{"b": {"\\u0000": 1}, "a": [2]}', "a") == [("a", 2)]
    assert entries(b'[{"a": [1]}]', "a") == entries(b"[[1], [2]]", "a") == []


@pytest.mark.parametrize(
    "text", [b"NaN", b"1 2", b"1,", b'{"x": 1,}', b'"\xff"', b'{"x" 1}', b'{"x": [1}]', b"01"]
)
@pytest.mark.parametrize("place", [b'{"a": [%b]}', b'{"a": [1], "b": [%b]}', b'{"b": {"c": [%b]}}'])
def test_entries_of_a_damaged_document_raise_an_error(text, place):
    with pytest.raises((ijson.JSONError, ValueError)):
        entries(place % text, "a")


def test_values_nested_too_deeply_are_replaced():
    depth = 100_000
    ((_, entry),) = entries(b'{"a": [' + b"[" * depth + b"]" * depth + b"]}", "a")
    assert fault_of(entry).startswith("nested too deeply")


def test_a_document_that_changes_while_it_is_read():
    stream = io.BytesIO(b'{"a": [1], "b": [2]}')
    with pytest.raises(ValueError, match="it changed while it was read"):
        list(entries_of(stream, {"a": []}, ["a"]))


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_tokens_longer_than_the_limit_end_the_document(quote, chunk, monkeypatch):
    monkeypatch.setattr(documents, "_PARSED_BYTES", chunk)
    monkeypatch.setattr(documents, "_MAX_TEXT", 100)
    monkeypatch.setattr(documents, "_MAX_NUMBER", 100)

    def read(size):
        token = f"{quote}{'9' * size}{quote}"
        data = f'{{"a": [1, {token}]}}'.encode()
        outline = {"a": []}
        return data, [entry for _, entry in entries_of(io.BytesIO(data), outline, ["a"])]

    data, found = read(12)
    assert [str(entry) for entry in found] == ["1", "9" * 12]
    assert [str(value) for value in values_at(io.BytesIO(data), "a.item")] == ["1", "9" * 12]
    with pytest.raises(ValueError, match="has more than 100 bytes"):
        read(300)


@given(VALUES, st.integers(1, 20))
def test_values_at_a_path_end_before_the_damage(value, chunk):
    data = json.dumps({"b": 0, "a": [value, {"c": value}]}).encode()
    with patch.object(documents, "_PARSED_BYTES", chunk):
        assert list(values_at(io.BytesIO(data), "a.item.c"))[-1:] == [value]
        assert list(values_at(io.BytesIO(data + b"}"), "a.item"))[:2] == [value, {"c": value}]
        assert list(values_at(io.BytesIO(b'{"a": [?'), "a.item")) == []


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
    assert fault_of([[[]] * 1000] * 1000) == ""


@pytest.mark.parametrize("text", ["1e400", "[-1e999]", '{"a": 1, "a": 1}', "9" * 5000, "[1", ""])
def test_invalid_json_is_rejected(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
