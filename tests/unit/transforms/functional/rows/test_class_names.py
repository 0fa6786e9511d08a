"""Tests of the ids of class labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ClassIds, ResolvedSchema
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import DeclaredClasses
from recordmill.transforms.functional.rows.feature_values import (
    _label_text,
    _sorted_class_names,
    class_id,
    is_class_name,
    merged_class_names,
    with_background,
)

TEXT, TYPED = True, False
PETS = {"cat": 0, "dog": 1, "owl": 2}
NUMERALS = {"10": 0, "20": 1, "cat": 2}
SIGNED = {"-1": 0, "cat": 1}


def outcome(function, *arguments):
    """Returns the result, or the reason of the reject."""
    try:
        return function(*arguments)
    except RecordError as error:
        raised = error
    assert raised.detail, "a message for a person"
    return raised.reason


@pytest.mark.parametrize(
    ("value", "is_text", "ids", "expected"),
    [
        pytest.param("dog", TEXT, PETS, 1, id="a name"),
        pytest.param("dog", TYPED, PETS, 1, id="a name in a typed table"),
        pytest.param("fox", TEXT, PETS, Reason.UNKNOWN_LABEL, id="a name of no class"),
        pytest.param("Dog", TEXT, PETS, Reason.UNKNOWN_LABEL, id="case counts"),
        pytest.param(" dog", TEXT, PETS, Reason.UNKNOWN_LABEL, id="white space is not guessed off"),
        pytest.param("dog\n", TEXT, PETS, Reason.UNKNOWN_LABEL, id="a line break neither"),
        pytest.param("", TYPED, PETS, Reason.UNKNOWN_LABEL, id="no name"),
        pytest.param("2", TEXT, PETS, 2, id="an id as text"),
        pytest.param(2, TYPED, PETS, 2, id="an id"),
        pytest.param(0, TYPED, PETS, 0, id="id 0 is an id"),
        pytest.param(False, TYPED, PETS, 0, id="a bool is an integer"),
        pytest.param("3", TEXT, PETS, Reason.UNKNOWN_LABEL, id="an id beyond the last"),
        pytest.param(3, TYPED, PETS, Reason.UNKNOWN_LABEL, id="an id beyond the last, typed"),
        pytest.param(-1, TYPED, PETS, Reason.UNKNOWN_LABEL, id="-1 does not count from the end"),
        pytest.param("-1", TEXT, PETS, Reason.UNKNOWN_LABEL, id="-1 as text neither"),
        pytest.param("02", TEXT, PETS, Reason.UNKNOWN_LABEL, id="a leading zero makes a name"),
        pytest.param("2", TYPED, PETS, Reason.UNKNOWN_LABEL, id="typed text is a name"),
        pytest.param(1.0, TYPED, PETS, 1, id="a float without a fraction is an id"),
        pytest.param("1.0", TEXT, PETS, 1, id="also as text"),
        pytest.param(1.5, TYPED, PETS, Reason.WRONG_TYPE, id="a float"),
        pytest.param(b"dog", TYPED, PETS, Reason.WRONG_TYPE, id="bytes"),
        pytest.param(["dog"], TYPED, PETS, Reason.WRONG_TYPE, id="a list"),
        pytest.param("10", TEXT, NUMERALS, 0, id="names that look like numbers win"),
        pytest.param("20", TYPED, NUMERALS, 1, id="also in typed tables"),
        pytest.param("1", TEXT, NUMERALS, Reason.UNKNOWN_LABEL, id="so ids beside them are none"),
        pytest.param("cat", TEXT, NUMERALS, 2, id="names beside them"),
        # A typed 10 makes the class "10": its own row has to be of that class.
        pytest.param(10, TYPED, NUMERALS, 0, id="a typed integer whose class is its numeral"),
        pytest.param(1, TYPED, NUMERALS, Reason.UNKNOWN_LABEL, id="a typed integer of no class"),
        pytest.param("-1", TEXT, SIGNED, 0, id="a negative numeral is a name, too"),
        pytest.param("1", TEXT, SIGNED, Reason.UNKNOWN_LABEL, id="so ids beside it are none"),
        pytest.param("7", TEXT, None, 7, id="integers stand for themselves"),
        pytest.param("007", TEXT, None, 7, id="however written"),
        pytest.param(-1, TYPED, None, -1, id="negative ones, too"),
        pytest.param(2**63, TYPED, None, Reason.WRONG_TYPE, id="within 64 bits"),
        pytest.param("cat", TEXT, None, Reason.WRONG_TYPE, id="a name where there are no classes"),
        pytest.param("1.0", TEXT, None, 1, id="an integer as pandas writes it beside a NaN"),
        pytest.param(-1.0, TYPED, None, -1, id="also typed"),
        pytest.param("1.5", TEXT, None, Reason.WRONG_TYPE, id="a float where there are no classes"),
        pytest.param(float("nan"), TYPED, None, Reason.WRONG_TYPE, id="a NaN"),
    ],
)
def test_class_id(value, is_text, ids, expected):
    assert outcome(class_id, value, is_text, ClassIds(ids or {})) == expected


QUANTITIES = (
    ". For labels that are quantities, recordmill schema --infer TABLE prints a schema with "
    "kind: float, for --schema."
)


@pytest.mark.parametrize("ids", [ClassIds(), ClassIds(PETS)], ids=["integers", "names"])
@pytest.mark.parametrize(("value", "hint"), [(0.5, QUANTITIES), (float("nan"), "")], ids=str)
def test_a_label_with_a_fraction_may_be_a_quantity(value: float, hint: str, ids: ClassIds) -> None:
    with pytest.raises(RecordError) as raised:
        class_id(value, TYPED, ids)
    assert str(raised.value) == f"wrong_type: expected a class name or id, got {value}{hint}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["cat"], "wrong_type: expected a class name or id, got ['cat']. For several labels, set "
         "--schema multi_label."),
        ({"name": "cat"}, "wrong_type: expected a class name or id, got {'name': 'cat'}. Name "
         "a field, as in --columns label=label.name."),
        ("cat ", "unknown_label: expected a class name without outer whitespace or line breaks, "
         "got 'cat '. Fix the label; --classes cannot have it either."),
    ],
    ids=["list", "object", "blank"],
)  # fmt: skip
def test_a_label_that_no_table_of_classes_has(value: object, expected: str) -> None:
    for ids in (ClassIds(), ClassIds(PETS)):
        with pytest.raises(RecordError) as raised:
            class_id(value, TEXT, ids)
        assert str(raised.value) == expected
    assert class_id(" 7 ", TEXT, ClassIds()) == 7


@pytest.mark.parametrize(
    ("first", "offset", "expected"),
    [
        (0, 0, ["0", "1", "is not within 0 to 1; ids count from 0: where they count from 1, "]),
        (0, 1, ["1", "2", "is not within 0 to 1; ids count from 0: where they count from 1, "]),
        (1, 0, ["is not within 1 to 2", "0", "1"]),
        (1, 1, ["is not within 1 to 2", "1", "2"]),
    ],
)
def test_integers_count_from_the_first_label(first: int, offset: int, expected: list[str]) -> None:
    feature = {"kind": "int64", "from": "column:label", "classes": True}
    feature |= {"label_offset": offset, "first_label": first}
    schema = Schema.model_validate({"features": {"label": feature}})
    ids = ResolvedSchema(schema, {"label": with_background(("cat", "dog"), offset)}).class_ids
    assert [class_id(name, TEXT, ids["label"]) for name in ("cat", "dog")] == [offset, offset + 1]
    for number, said in enumerate(expected):
        for value, is_text in ((str(number), TEXT), (number, TYPED)):
            found = outcome(lambda *label: str(class_id(*label)), value, is_text, ids["label"])
            if len(said) == 1:
                assert found == said
                continue
            with pytest.raises(RecordError, match=said):
                class_id(value, is_text, ids["label"])
    numbers = ResolvedSchema(schema, {"label": ()}).class_ids["label"]
    assert [class_id(number, TYPED, numbers) for number in (1, 9)] == [
        1 - first + offset,
        9 - first + offset,
    ]
    for number in (2**63 - offset, *range(first)):
        assert outcome(class_id, number, TYPED, numbers) is Reason.WRONG_TYPE


def test_a_label_that_cannot_be_a_class_name_has_no_remedy_in_classes():
    with pytest.raises(RecordError) as raised:
        class_id("dog ", TEXT, ClassIds(PETS))
    assert raised.value.detail == (
        "expected a class name without outer whitespace or line breaks, got 'dog '. "
        "Fix the label; --classes cannot have it either."
    )


@pytest.mark.parametrize(
    ("value", "is_text", "expected"),
    [
        ("cat", TEXT, b"cat"),
        ("7", TEXT, b"7"),
        (7, TYPED, b"7"),
        (-7, TYPED, b"-7"),
        (b"raw", TYPED, b"raw"),
        (True, TYPED, Reason.WRONG_TYPE),
        (1.5, TYPED, Reason.WRONG_TYPE),
        ("\ud800", TYPED, Reason.WRONG_TYPE),
    ],
    ids=repr,
)
def test_label_text(value, is_text, expected):
    assert outcome(_label_text, value, is_text) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param([], (), id="no label"),
        pytest.param(["dog", "cat", "dog"], ("cat", "dog"), id="sorted, each once"),
        pytest.param([3, 1, 2], (), id="integers stay integers"),
        pytest.param([3, "cat"], ("3", "cat"), id="an integer among names is a name"),
        pytest.param([-1, "cat"], ("cat",), id="no label among names"),
        pytest.param(["-1", "cat", "-2"], ("-2", "cat"), id="no label as text"),
        pytest.param([1, "1"], ("1",), id="a number and its numeral are one class"),
        pytest.param(["10", "9"], ("10", "9"), id="numerals sort as text"),
        pytest.param(["b", "é", "Z", "a"], ("Z", "a", "b", "é"), id="by code point, in no locale"),
        pytest.param(["cat", " cat", "", "a\nb", "cat\t"], ("cat",), id="what can be no name"),
        # `to_int64` reads " 7 " as 7, and a padded integer is no class's name: one such field must
        # not turn label 1 into a class of that name, with another id.
        pytest.param([1, 2, " 7 "], (), id="an integer with white space around it"),
        pytest.param(["cat", "\ud800"], ("cat",), id="a lone surrogate has no bytes in labels.txt"),
    ],
)
def test_sorted_class_names(labels, expected):
    assert _sorted_class_names(labels) == expected


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_tfds_reads_every_class_name_from_the_labels_file(labels):
    names = _sorted_class_names([*labels, "one"])
    file = "".join(f"{name}\n" for name in names).encode()
    assert [line.strip() for line in file.decode().split("\n") if line.strip()] == list(names)
    assert list(names) == sorted(set(names))


@given(st.lists(st.one_of(st.text(max_size=3), st.integers(-30, 30)), min_size=1))
def test_every_valid_label_has_the_id_of_its_class(labels):
    names = _sorted_class_names(labels)
    ids = ClassIds((name, i) for i, name in enumerate(names)) or None
    for label in labels:
        if names and is_class_name(str(label)) and str(label) != "-1":
            assert names[class_id(label, TYPED, ids)] == str(label)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", True),
        ("wire fox terrier", True),
        ("7", True),
        ("🐈", True),
        ("", False),
        (" ", False),
        (" cat", False),
        ("cat\n", False),
        ("a\nb", False),
        ("a\rb", False),
        ("a\u2028b", False),
        ("\u00a0cat", False),
        ("{cat}", True),
        ("[cat]", True),
        ('{"label": "cat"}', False),
        ('[ {"x": 1, "rectanglelabels": ["cat"]}]', False),
        ("{}", False),
    ],
    ids=repr,
)
def test_is_class_name(text, expected):
    assert is_class_name(text) is expected


@pytest.mark.parametrize("ids", [None, ClassIds([("cat", 0), ('{"a": 1}', 1)])])
def test_objects_of_json_are_no_labels(ids):
    with pytest.raises(RecordError, match=r"expected a class name or id, got '\{") as caught:
        class_id('{"a": 1}', TEXT, ids)
    assert caught.value.reason is Reason.WRONG_TYPE


def test_class_names_are_searched_in_constant_time():
    class Counted(ClassIds):
        looks = 0

        def __iter__(self):
            Counted.looks += 1
            return super().__iter__()

    ids = Counted((f"class {i}", i) for i in range(100))
    assert [class_id(i, TYPED, ids) for i in range(100)] == list(range(100))
    assert Counted.looks == 1


def test_merging_100_000_class_names_is_fast():
    names = [f"class {i:06}" for i in range(200_000)]
    assert merged_class_names(names[50_000:], names[:100_000]) == tuple(
        names
    )  # hours, if each is sought


def test_integers_are_ids_where_the_source_declares_that_even_if_classes_are_numerals():
    ids = ClassIds({"0": 0, "1": 1, "10": 2, "2": 3})
    assert class_id(2, TYPED, ids) == 3
    ids.by_id = True
    assert class_id(2, TYPED, ids) == 2
    assert class_id("2", TYPED, ids) == 3
    assert outcome(class_id, -1, TYPED, ids) is Reason.UNKNOWN_LABEL


def test_integers_that_are_names_are_classes_unless_the_base_has_integers():
    folders = DeclaredClasses((), are_names=True)
    assert merged_class_names([8, 10, 9], None, folders) == ("10", "8", "9")
    assert merged_class_names([8, 10], ("8",), folders) == ("8", "10")
    assert merged_class_names([8, 10], (), folders) == ()


@pytest.mark.parametrize(
    ("labels", "known", "by_id", "expected"),
    [
        (["ant"], None, False, ("cat", "bee", "ant")),
        ([1, 7], None, False, ("cat", "bee")),
        ([1, "x"], None, False, ("cat", "bee", "1", "x")),
        ([1, "x"], None, True, ("cat", "bee", "x")),
        ([], ("bee",), False, ("bee", "cat")),
    ],
)
def test_declared_classes_come_before_others_and_after_those_of_the_base(
    labels, known, by_id, expected
):
    declared = DeclaredClasses(((1, "cat"), (7, "bee"), (9, " not a class name ")), by_id)
    assert merged_class_names(labels, known, declared) == expected
