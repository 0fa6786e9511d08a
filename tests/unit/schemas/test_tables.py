"""The files of a table and their splits."""

from __future__ import annotations

import pickle

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import (
    ABSENT,
    DeclaredClasses,
    Part,
    Projection,
    TableFile,
    _field_of,
    _flat_values,
    column_names,
)

ROW = {
    "id": 7,
    "a.b": 1,
    "patient": {"age": 40, "stay": {"days": [1, 2]}},
    "objects": [{"bbox": [1, 2], "tag": {"x": 1}}, {"bbox": [3, 4]}],
    "none": [],
    "words": ["a"],
    "image": {"bytes": b"x", "path": "x.png"},
}


def test_a_split_is_by_default_the_whole_file_from_its_first_row():
    file = TableFile("t.csv", "csv")
    assert file == TableFile("t.csv", "csv", gzipped=False)
    assert Part(file) == Part(file, row_group=None, first=1)


def test_splits_can_be_pickled_and_hashed():
    splits = {Part(TableFile("t.parquet", "parquet"), group, group * 10) for group in range(3)}
    assert pickle.loads(pickle.dumps(splits)) == splits  # noqa: S301
    assert len(splits) == 3


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("patient.age", 40),
        ("patient.stay", {"days": [1, 2]}),
        ("patient.stay.days", [1, 2]),
        ("objects.bbox", [[1, 2], [3, 4]]),
        ("objects.tag.x", [1, None]),
        ("none.bbox", []),
        ("words.bbox", ABSENT),
        ("objects.other", ABSENT),
        ("patient.name", ABSENT),
        ("id.x", ABSENT),
        ("other.x", ABSENT),
        (".", ABSENT),
    ],
)
def test_a_path_leads_into_objects_and_lists_of_objects(path, expected):
    assert _field_of(ROW, path) == expected


def test_a_projection_keeps_columns_and_fields():
    names = ("patient.age", "a.b", "id", "other", "objects.other")
    assert list(Projection(names).apply(ROW).items()) == [
        ("a.b", 1),
        ("id", 7),
        ("patient.age", 40),
    ]


def test_without_a_projection_fields_replace_objects_except_for_images():
    flat = Projection().apply(ROW)
    assert flat == _flat_values(ROW)
    assert list(flat) == [
        "id",
        "a.b",
        "patient.age",
        "patient.stay.days",
        "objects",
        "none",
        "words",
        "image",
    ]


def test_names_of_columns_include_those_of_fields():
    assert list(column_names(ROW)) == [
        "id",
        "a.b",
        "patient",
        "patient.age",
        "patient.stay",
        "patient.stay.days",
        "objects",
        "objects.bbox",
        "objects.tag",
        "objects.tag.x",
        "objects.bbox",
        "none",
        "words",
        "image",
        "image.bytes",
        "image.path",
    ]


PETS = DeclaredClasses(((1, "cat"), (7, "dog")))


@pytest.mark.parametrize(
    ("other", "merged"),
    [
        ((), ((1, "cat"), (7, "dog"))),
        (((7, "dog"), (1, "cat")), ((1, "cat"), (7, "dog"))),
        (((3, "bee"), (7, "dog")), ((1, "cat"), (3, "bee"), (7, "dog"))),
    ],
)
def test_classes_of_two_sources_are_merged_by_id_in_any_order(other, merged):
    assert PETS.merge(DeclaredClasses(other), "b.json") == DeclaredClasses(merged)
    assert DeclaredClasses(tuple(sorted(other))).merge(PETS, "a.json") == DeclaredClasses(merged)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (((1, "dog"), (2, "bee")), "id 1 is 'dog', and 'cat' in a file before"),
        (((0, "cat"), (2, "bee")), "the id of 'cat' is 0, and 1 in a file before"),
    ],
)
def test_sources_that_contradict_each_other_keep_the_order_of_the_first(other, problem):
    merged = PETS.merge(DeclaredClasses(other), "b.json")
    assert merged.names == (*PETS.names, (2, "bee"))
    assert merged.conflict == f"b.json: {problem}"
    assert merged.merge(PETS, "c.json").conflict == merged.conflict
    with pytest.raises(UsageError) as raised:
        PETS.merge(DeclaredClasses(other, by_id=True), "b.json")
    assert str(raised.value).startswith(f"b.json: {problem}. Convert the files separately")
