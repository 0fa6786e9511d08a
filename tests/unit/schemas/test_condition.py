"""The language of --where."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from recordmill.schemas.condition import Condition
from recordmill.schemas.rejects import Reason, RecordError

TYPED = {"label": "cat", "age": 7, "tags": ["a", "b"], "one": ["x"], "none": None, "a b.c": b"raw"}
TEXT = {"label": "cat", "age": "07", "size": "1.5", "none": ""}


def holds(text: str, values: dict[str, Any], untyped: bool = False) -> bool:
    return Condition(text).holds({name: (value, untyped) for name, value in values.items()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label == 'cat'", True),
        ("label != 'cat'", False),
        ("label in ('dog', 'cat')", True),
        ("label not in ['dog']", True),
        ("age >= 7 and age < 8", True),
        ("5 < age <= 7", True),
        ("-1 == age or label == 'dog'", False),
        ("'a' in tags", True),
        ("'a' not in tags", False),
        ("one == 'x'", True),
        ("column('a b.c') == 'raw'", True),
        ("a.b is None", True),
        ("none is None and label is not None", True),
        ("none != 'x'", False),
        ("not none == 'x'", True),
        ("age in (1, 7.0)", True),
        ("age in (1, 8.0)", False),
    ],
)
def test_typed_values_are_compared(text: str, expected: bool) -> None:
    assert holds(text, TYPED) is expected
    assert pickle.loads(pickle.dumps(Condition(text))).columns == Condition(text).columns  # noqa: S301


@pytest.mark.parametrize(
    ("text", "expected"),
    [("age == 7", True), ("age == '07'", True), ("size > 1", True), ("none is None", True)],
)
def test_text_is_read_as_what_it_is_compared_with(text: str, expected: bool) -> None:
    assert holds(text, TEXT, untyped=True) is expected


@pytest.mark.parametrize(
    ("text", "values", "untyped", "detail"),
    [
        (
            "label > 3",
            TYPED,
            False,
            "'label': … a number, got 'cat'; compare as in label == 'cat'",
        ),
        (
            "label > 3",
            TEXT,
            True,
            "'label': … a number, got 'cat'; compare as in label == 'cat'",
        ),
        ("age == '7'", TYPED, False, "'age': … a text, got '7'; compare as in age == 7"),
        (
            "'c' in label",
            TYPED,
            False,
            "'label': … a list, got 'cat'; compare as in label == 'cat'",
        ),
        (
            "tags == 'a'",
            TYPED,
            False,
            "'tags': … a text, got \"['a', 'b']\"; compare as in 'a' in tags",
        ),
    ],
)
def test_values_of_another_type_are_rejected(
    text: str, values: dict[str, Any], untyped: bool, detail: str
) -> None:
    with pytest.raises(RecordError) as caught:
        holds(text, values, untyped)
    detail = f"column {detail.replace('…', '--where expects')}."
    assert (caught.value.reason, caught.value.detail) == (Reason.WRONG_TYPE, detail)


@pytest.mark.parametrize(
    ("text", "untyped", "expected"),
    [
        ("label == 'dog' and age == 8", False, ["label == 'cat'", "age == 7"]),
        ("'c' in tags", False, ["'a' in tags"]),
        ("one in ('y', 'z')", False, ["one == 'x'"]),
        ("none == 'x' and a.b == 1", False, ["none is None", "a.b is None"]),
        ("none == 'x'", True, ["none is None"]),
        ("column('a b.c') == 'x'", False, ["column('a b.c') == 'raw'"]),
    ],
)
def test_conditions_that_hold_for_values_are_named(
    text: str, untyped: bool, expected: list[str]
) -> None:
    values = TEXT if untyped else TYPED
    cells = {name: (values.get(name), untyped) for name in Condition(text).columns}
    named = list(Condition(text).of_values(cells))
    assert named == expected
    assert all(Condition(one).holds(cells) for one in named)


@pytest.mark.parametrize("value", ["x" * 10**6, {"a": 1}, [[1]], float("nan"), b"\xff"])
def test_any_value_is_named_in_short(value: Any) -> None:
    (named,) = Condition("a == 1").of_values({"a": (value, False)})
    assert len(named) < 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "label",
        "label = 'a'",
        "label == other",
        "age + 1 == 2",
        "__import__('os').system('true') == 0",
        "label.upper() == 'A'",
        "label == None",
        "label in ('a', 1)",
        "label in other",
        "label in ()",
        "age in (7, None)",
        "None not in tags",
        "None in tags",
        "('a', 'b') not in tags",
        "age in (1, (7, 8))",
        "age is 3",
        "1 == 1",
        "weight (kg) > 5",
        "[x for x in tags]",
        "(" * 500 + "age" + ")" * 500 + " == 1",
        "label == 'a'" * 2_000,
    ],
)
def test_anything_else_is_not_a_condition(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|cannot be compared|is compared with"):
        _ = Condition(text).columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "label == 'a/b' and image/class/label == 3",
            "expected a condition, as in label in ('a', 'b') or column('image/class/label') == 7: "
            "invalid syntax",
        ),
        (
            "class == 3",
            "expected a condition, as in label in ('a', 'b') or column('class') == 7: "
            "invalid syntax",
        ),
        (
            "image/id == 3",
            "expected a column, got image / id; column('image/id') is one of that name",
        ),
        ("1 == 1", "expected a column, got 1; column('1') is one of that name"),
        (
            "weight (kg) > 5",
            "expected a column, got weight(kg); column('weight(kg)') is one of that name",
        ),
        (
            "label = 3",
            "expected a condition, as in label in ('a', 'b') or age == 7: invalid syntax",
        ),
    ],
)
def test_columns_with_other_characters_are_named_as_a_condition_has_to(
    text: str, message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        _ = Condition(text).columns
    assert str(error.value) == message
