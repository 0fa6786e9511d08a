"""Tests of the identities and rejects of rows, and of the cells that they are read from."""

from __future__ import annotations

import pytest

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding, reject_row
from tests.binding import Identity, bind, identity_of


def text_row(**values):
    return Row(values, "/data/t.csv", 17, is_text=True)


def typed_row(**values):
    return Row(values, "/data/t.parquet", 17)


def binding(schema, classes=None, columns=None, **options):
    return Binding(ResolvedSchema(schema, classes or {}), columns or {}, **options)


SPLIT = {"split_column": "part"}


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        pytest.param(
            text_row(image="a.jpg"), {}, Identity("a.jpg", "/data/a.jpg", "", ""), id="path"
        ),
        pytest.param(
            text_row(image="/x/a.jpg"), {}, Identity("/x/a.jpg", "/x/a.jpg", "", ""), id="absolute"
        ),
        pytest.param(
            text_row(image=" ä\u2028b,c.jpg "),
            {},
            Identity(" ä\u2028b,c.jpg ", "/data/ ä\u2028b,c.jpg ", "", ""),
            id="a path is kept exactly",
        ),
        pytest.param(text_row(image=""), {}, Reason.MISSING_VALUE, id="no path"),
        pytest.param(text_row(), {}, Reason.MISSING_VALUE, id="no path column in the row"),
        pytest.param(typed_row(image=7), {}, Reason.WRONG_TYPE, id="a path that is a number"),
        pytest.param(typed_row(image=b"a.jpg"), {}, Reason.WRONG_TYPE, id="a path that is bytes"),
        pytest.param(typed_row(image="\ud800.jpg"), {}, Reason.WRONG_TYPE, id="a lone surrogate"),
        pytest.param(
            typed_row(image="a.jpg", id=0),
            {"key_column": "id"},
            Identity("0", "/data/a.jpg", "", ""),
            id="a numeric key, even 0",
        ),
        pytest.param(
            typed_row(image="a.jpg", id=True),
            {"key_column": "id"},
            Reason.WRONG_TYPE,
            id="a boolean key",
        ),
        pytest.param(
            typed_row(image="a.jpg", id=1.0),
            {"key_column": "id"},
            Reason.WRONG_TYPE,
            id="a float key",
        ),
        pytest.param(
            text_row(image="a.jpg", id=""), {"key_column": "id"}, Reason.MISSING_VALUE, id="no key"
        ),
        pytest.param(
            text_row(image="a.jpg", part="test"),
            SPLIT,
            Identity("a.jpg", "/data/a.jpg", "test", ""),
            id="its own split",
        ),
        pytest.param(
            text_row(image="a.jpg", part=""),
            SPLIT,
            Identity("a.jpg", "/data/a.jpg", "", ""),
            id="no split of its own",
        ),
        pytest.param(
            text_row(image="a.jpg"),
            SPLIT,
            Identity("a.jpg", "/data/a.jpg", "", ""),
            id="split absent",
        ),
        pytest.param(
            text_row(image="a.jpg", part="val id"), SPLIT, Reason.UNKNOWN_SPLIT, id="split: blanks"
        ),
        pytest.param(
            text_row(image="a.jpg", part="../x"), SPLIT, Reason.UNKNOWN_SPLIT, id="split: a path"
        ),
        pytest.param(
            text_row(image="a.jpg", part="train\n"),
            SPLIT,
            Reason.UNKNOWN_SPLIT,
            id="split: newline",
        ),
        pytest.param(typed_row(image="a.jpg", part=1), SPLIT, Reason.UNKNOWN_SPLIT, id="split: 1"),
        *(
            pytest.param(
                row(image="a.jpg", part=value),
                {**SPLIT, "splits": frozenset({"fold0", "fold1"})},
                expected,
                id=f"split: {value!r} of folds",
            )
            for row, value, expected in [
                (text_row, "1", Identity("a.jpg", "/data/a.jpg", "fold1", "")),
                (typed_row, 0, Identity("a.jpg", "/data/a.jpg", "fold0", "")),
                (text_row, "2", Reason.UNKNOWN_SPLIT),
                (text_row, "01", Reason.UNKNOWN_SPLIT),
                (typed_row, True, Reason.UNKNOWN_SPLIT),
                (text_row, "False", Reason.UNKNOWN_SPLIT),
                (text_row, "TRUE", Reason.UNKNOWN_SPLIT),
            ]
        ),
        pytest.param(
            text_row(image="a.jpg", part="val"),
            {**SPLIT, "splits": frozenset({"train", "test"})},
            Reason.UNKNOWN_SPLIT,
            id="split: none of those there are",
        ),
        pytest.param(
            typed_row(image="a.jpg", who=5),
            {"group_column": "who"},
            Identity("a.jpg", "/data/a.jpg", "", "5"),
            id="group",
        ),
        pytest.param(
            text_row(image="a.jpg", who=""),
            {"group_column": "who"},
            Reason.MISSING_VALUE,
            id="no group",
        ),
        pytest.param(
            text_row(image="1a"),
            {"image_suffix": ".jpg"},
            Identity("1a", "/data/1a.jpg", "", ""),
            id="suffix",
        ),
        pytest.param(
            text_row(image="b/1a.JPG"),
            {"image_suffix": ".jpg"},
            Identity("b/1a.JPG", "/data/b/1a.JPG", "", ""),
            id="suffix that the path has",
        ),
        pytest.param(
            typed_row(image=17),
            {"image_suffix": ".jpg"},
            Identity("17", "/data/17.jpg", "", ""),
            id="suffix of a number",
        ),
    ],
)
def test_identity(row, options, expected):
    bound = binding(preset("image_classification"), **options)
    try:
        found = identity_of(row, bound)
    except RecordError as error:
        found = error.reason
    assert found == expected


def test_without_an_image_the_key_is_file_and_line():
    bound = binding(Schema(features={"f": Feature(kind="int64", sources="column:x")}))
    assert identity_of(text_row(x="1"), bound) == Identity("t.csv:17", "", "", "")


def test_equal_image_paths_in_two_folders_of_metadata_have_different_keys():
    bound = binding(preset("image_classification"), key_prefixes={"/d/train/t.csv": "train/"})
    rows = [Row({"image": "1.jpg"}, f"/d/{split}/t.csv", 2, True) for split in ("train", "test")]
    found = [identity_of(row, bound) for row in rows]
    assert [(one.key, one.uri) for one in found] == [
        ("train/1.jpg", "/d/train/1.jpg"),
        ("1.jpg", "/d/test/1.jpg"),
    ]


@pytest.mark.parametrize(
    ("row", "options", "key", "uri"),
    [
        pytest.param(text_row(image="a.jpg"), {}, "a.jpg", "/data/a.jpg", id="both"),
        pytest.param(text_row(label="x"), {}, "", "", id="neither"),
        pytest.param(text_row(image="a.jpg"), {"key_column": "id"}, "", "/data/a.jpg", id="no key"),
        pytest.param(typed_row(image="\ud800"), {}, "", "", id="a path that is no text"),
    ],
)
def test_rejects_have_the_valid_key_and_image(row, options, key, uri):
    bound = binding(preset("image_classification"), **options)
    error = RecordError(Reason.UNKNOWN_LABEL, "so and so")
    expected = Reject(key, uri, row.source, Reason.UNKNOWN_LABEL, "so and so")
    assert reject_row(row, bound, error) == expected


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        (Row({"image": "1.jpg"}, "/d/1.jpg", 0, True, Location("/d/1.jpg")), "the folder of its"),
        (Row({"image": "1.jpg"}, "/d/1.xml", 0, True, Location("/d/1.jpg")), ""),
        (text_row(image="1.jpg"), ""),
    ],
    ids=["a folder of images", "annotations", "a table"],
)
def test_an_image_without_a_class_folder_has_a_remedy_for_folders(row, remedy):
    error = RecordError(Reason.MISSING_VALUE, "column 'label': empty")
    detail = reject_row(row, binding(preset("image_classification")), error).detail
    assert detail.startswith("column 'label': empty")
    assert ("Move the image to the folder of its class;" in detail) == bool(remedy)
    assert detail.endswith(".") == bool(remedy)  # in place of that of the reason


def test_split_names_that_are_invalid_in_file_names_are_rejected():
    bound = binding(preset("image_classification"), {"label": ("cat",)}, split_column="part")
    row = {"image": "a.jpg", "label": "cat"}
    assert bind(text_row(**row, part="s" * 50), bound).split == "s" * 50
    with pytest.raises(RecordError, match="expected up to 50 letters, digits and _") as raised:
        bind(text_row(**row, part="s" * 51), bound)
    assert raised.value.reason is Reason.UNKNOWN_SPLIT
