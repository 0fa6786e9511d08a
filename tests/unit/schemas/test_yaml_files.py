"""Untrusted YAML: any file gives values or a single error message."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.yaml_files import load_yaml, parse_schema
from recordmill.transforms.functional.sources import yolo

READERS = [lambda text, where: yolo._parse_yaml(text.encode("utf-8"), where), parse_schema]
MERGES = "\n".join(
    ["a0: &a0 {k: v}"]
    + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
)

KINDS = (
    "bool",
    "int",
    "float",
    "null",
    "timestamp",
    "binary",
    "omap",
    "pairs",
    "set",
    "seq",
    "map",
)
PIECES = st.sampled_from(
    [
        *(f"!!{kind} " for kind in KINDS),
        *("names", "features", ": ", ":\n  ", "\n", "- ", "[", "]", "{", "}", ", ", "&a ", "*a "),
        *("<<: ", "? ", "''", "1", "x", "0x" + "f" * 50, "1:2:3", "2021-13-45", "---\n", "|\n"),
    ]
)
YAML = st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=40)


@pytest.mark.parametrize("read", READERS, ids=["yolo", "schema"])
@settings(max_examples=100)
@given(YAML)
@example("names: !!bool cat")
@example("names: [!!timestamp foo]")
@example("!!int ''")
@example("names: 0x" + "f" * 5000)
@example("features: {a: {kind: int64, from: key, shape: [0x" + "f" * 5000 + "]}}")
@example("? [a, b]\n: c")
@example("\0")
def test_any_text_is_read_or_rejected_with_one_message(read, text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    try:
        read(text, "f.yaml")
    except UsageError as error:
        message = str(error)
    else:
        return
    assert message.startswith("f.yaml")
    assert len(message) < 2_000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: !!bool cat", r":2:4: not a YAML file: 'cat' is not a valid bool: "),
        ("a: !!int ''", r":1:4: not a YAML file: '' is not a valid int: "),
        ("[!!timestamp foo]", r":1:2: not a YAML file: 'foo' is not a valid timestamp: "),
        ("a: 2021-13-45", r":1:4: not a YAML file: '2021-13-45' is not a valid timestamp: month"),
        ("a: " + "1:" * 200_000 + "1", r":1:4: .* a value of type int with 400,001 characters"),
        ("a: " + "[" * 65 + "]" * 65, r":1:67: not a YAML file: nested too deeply: over 64 levels"),
        (MERGES, r": .*its aliases expand to more than 100,000 values"),
        ("a: 1\na: 2", r":2:1: the key 'a' occurs twice"),
        ("a" * (2**20 + 1), r": has 1,048,577 characters; expected at most 1,048,576"),
    ],
    ids=["bool", "int", "timestamp", "month", "base 60", "deep", "merges", "twice", "long"],
)
def test_errors_are_reported_with_their_location(text, problem):
    with pytest.raises(UsageError, match=rf"^f\.yaml{problem}"):
        load_yaml(text, "f.yaml")


def test_merged_keys_and_aliases_of_a_reasonable_size_are_read():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a"
    assert load_yaml(text, "f.yaml")[1] == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 2},
    }


def test_an_empty_text_is_an_empty_document():
    assert load_yaml("", "f.yaml") == (None, None)
