"""Tests of the references and rejects of rows bound to a schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.removal import digest_of_key
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import (
    Binding,
    Identity,
    bind,
    bind_rows,
    by_halves,
    identity_of,
    reject_row,
    resolve_path,
)
from recordmill.transforms.functional.rows.columns import resolve_sources


def text_row(**values):
    return Row(values, "/data/t.csv", 17, is_text=True)


def typed_row(**values):
    return Row(values, "/data/t.parquet", 17)


def binding(schema, classes=None, columns=None, **options):
    return Binding(ResolvedSchema(schema, classes or {}), columns or {}, **options)


def one_feature(**options):
    """Returns the binding of a schema with one feature, from the column x."""
    return binding(Schema(features={"f": Feature(**{"sources": "column:x", **options})}))


def value(bound, row):
    """Returns the value of the only feature, or the reason of the reject."""
    try:
        (found,) = bind(row, bound).values
    except RecordError as error:
        return error.reason
    return found


CLASSIFICATION = binding(preset("image_classification"), {"label": ("cat", "dog")})


def test_a_row_becomes_a_reference():
    assert bind(text_row(image="photos/1.jpg", label="dog"), CLASSIFICATION) == ImageRef(
        key="photos/1.jpg",
        uri="/data/photos/1.jpg",
        start=None,
        stop=None,
        values=(None, b"photos/1.jpg", 1),
        file="/data/t.csv",
        line=17,
        split="",
        group="",
    )


def test_all_options_together():
    bound = binding(
        preset("image_classification"),
        {"label": ("cat", "dog")},
        {"image": "file", "label": "pet"},
        image_root="gs://b/photos",
        key_column="id",
        split_column="part",
        group_column="owner",
        splits=frozenset({"train", "test"}),
    )
    row = text_row(file="1.jpg", pet="cat", id="Ä7", part="test", owner="Zoë")
    assert bind(row, bound) == ImageRef(
        key="Ä7",
        uri="gs://b/photos/1.jpg",
        start=None,
        stop=None,
        values=(None, b"1.jpg", 0),
        file="/data/t.csv",
        line=17,
        split="test",
        group="Zoë",
    )


def test_tf_slim_takes_text_and_id_of_the_same_label():
    schema = schema_of("tf_slim", ["image", "label"])
    bound = binding(schema, {"image/class/label": ("cat", "dog")})
    for label in ("dog", "1"):
        values = bind(text_row(image="a.jpg", label=label), bound).values
        assert values == (None, None, 1, b"dog", None, None, b"a.jpg", None, b"a.jpg")


def test_tf_slim_without_class_names_writes_the_integer_as_text():
    schema = schema_of("tf_slim", ["image", "label", "id"])
    bound = binding(schema, {"image/class/label": ()})
    values = bind(typed_row(image="a.jpg", label=-7, id="n1"), bound).values
    assert values == (None, None, -7, b"-7", None, None, b"a.jpg", None, b"n1")


def schema_of(name, present):
    schema = preset(name)
    config = ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema)
    return resolve_sources(schema, present, config)


@pytest.mark.parametrize(
    ("feature", "row", "expected"),
    [
        pytest.param({"kind": "int64"}, text_row(x="0"), 0, id="0 is a value"),
        pytest.param({"kind": "int64"}, typed_row(x=False), 0, id="False is a value"),
        pytest.param({"kind": "bytes"}, text_row(x=""), b"", id="empty text is a value"),
        pytest.param({"kind": "bytes"}, typed_row(x=""), b"", id="typed, too"),
        pytest.param({"kind": "int64"}, text_row(x=""), Reason.MISSING_VALUE, id="no number"),
        pytest.param({"kind": "int64"}, typed_row(x=""), Reason.WRONG_TYPE, id="typed text"),
        pytest.param({"kind": "int64"}, text_row(), Reason.MISSING_VALUE, id="absent"),
        pytest.param({"kind": "bytes"}, typed_row(x=None), Reason.MISSING_VALUE, id="null"),
        pytest.param({"kind": "int64"}, text_row(x="1.5"), Reason.WRONG_TYPE, id="1.5 no int64"),
        pytest.param({"kind": "int64", "default": 7}, text_row(x=""), 7, id="default"),
        pytest.param({"kind": "int64", "default": 0}, text_row(), 0, id="default 0"),
        pytest.param(
            {"kind": "float", "default": 0.1}, text_row(), 0.10000000149011612, id="float32"
        ),
        pytest.param(
            {"kind": "bytes", "default": "ä"}, typed_row(), b"\xc3\xa4", id="default text"
        ),
        pytest.param({"kind": "bytes", "default": ""}, typed_row(), b"", id="default empty text"),
        pytest.param({"kind": "bytes", "default": "7"}, typed_row(), b"7", id="default numeral"),
        pytest.param({"kind": "int64", "missing": "empty"}, text_row(x=""), [], id="empty list"),
        pytest.param({"kind": "bytes", "missing": "empty"}, text_row(x=""), b"", id="empty text"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x="1|2"), [1, 2], id="list"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x="[1, 2]"), [1, 2], id="JSON list"),
        pytest.param({"kind": "int64", "shape": ()}, text_row(x=""), [], id="list of none"),
        pytest.param(
            {"kind": "int64", "shape": ()}, text_row(x="1|x"), Reason.WRONG_TYPE, id="item"
        ),
        pytest.param({"kind": "int64", "shape": ()}, typed_row(x=[0, 1]), [0, 1], id="typed list"),
        pytest.param(
            {"kind": "int64", "shape": ()}, typed_row(x=1), Reason.WRONG_TYPE, id="no list"
        ),
        pytest.param(
            {"kind": "int64", "shape": ()},
            typed_row(x=[1, None]),
            Reason.WRONG_TYPE,
            id="null item",
        ),
        pytest.param(
            {"kind": "int64", "shape": ()}, typed_row(), Reason.MISSING_VALUE, id="no field"
        ),
        pytest.param({"kind": "float", "shape": (2,)}, text_row(x="1|2"), [1.0, 2.0], id="pair"),
        pytest.param(
            {"kind": "float", "shape": (2,)}, text_row(x="1|2|3"), Reason.WRONG_TYPE, id="too many"
        ),
        pytest.param(
            {"kind": "float", "shape": (2,)}, typed_row(x=[1.0]), Reason.WRONG_TYPE, id="too few"
        ),
        pytest.param(
            {"kind": "float", "shape": (2,), "missing": "empty"}, typed_row(), [], id="pair or none"
        ),
        # A CSV field cannot be null: an empty one is how a table says that there is no pair.
        pytest.param(
            {"kind": "float", "shape": (2,), "missing": "empty"}, text_row(x=""), [], id="in text"
        ),
        pytest.param(
            {"kind": "int64", "classes": True}, text_row(x=""), Reason.MISSING_VALUE, id="no class"
        ),
        pytest.param({"kind": "bytes", "sources": "key"}, text_row(), b"t.csv:17", id="key"),
    ],
)
def test_values(feature, row, expected):
    assert value(one_feature(**feature), row) == expected


def test_an_empty_label_is_missing_for_its_text_as_for_its_id():
    features = {
        "id": Feature(kind="int64", sources="column:label", classes=True, missing="empty"),
        "text": Feature(kind="bytes", sources="class_name:label", missing="empty"),
    }
    bound = binding(Schema(features=features), {"id": ("cat", "dog")})
    assert bind(text_row(label=""), bound).values == ([], [])
    assert bind(typed_row(label=None), bound).values == ([], [])
    assert bind(text_row(label="dog"), bound).values == (1, b"dog")


def test_class_names_of_a_list():
    features = {
        "ids": Feature(kind="int64", sources="column:labels", shape=(), classes=True),
        "texts": Feature(kind="bytes", sources="class_name:labels", shape=()),
    }
    bound = binding(Schema(features=features), {"ids": ("cat", "dog", "owl")})
    assert bind(text_row(labels="owl|cat"), bound).values == ([2, 0], [b"owl", b"cat"])
    assert bind(typed_row(labels=[]), bound).values == ([], [])


CELLS = st.sampled_from(["", " ", "7", "-3", "007", "1.5", "true", "x", "cat", "\ud800", "9" * 19])
EVERY = st.fixed_dictionaries(
    dict.fromkeys("ifbcl", CELLS), optional={"key": CELLS, "group": CELLS, "part": CELLS}
)


@given(
    st.lists(EVERY, min_size=1, max_size=20),
    st.sampled_from([{}, {"key_column": "key"}, {"group_column": "group", "split_column": "part"}]),
)
def test_rows_are_bound_together_as_one_by_one(values, flags):
    features = {
        "i": Feature(kind="int64", sources="column:i", missing="empty"),
        "f": Feature(kind="float", sources="column:f", missing="empty"),
        "b": Feature(kind="bytes", sources="column:b"),
        "c": Feature(kind="int64", sources="column:c", classes=True, missing="empty"),
        "l": Feature(kind="int64", sources="column:l", shape=(), missing="empty"),
    }
    bound = binding(Schema(features=features), {"c": ("7", "cat")}, **flags)
    rows = [Row(value, "/data/t.csv", i, True) for i, value in enumerate(values, start=2)]
    singly = []
    for row in rows:
        try:
            singly.append(bind(row, bound))
        except RecordError as error:
            singly.append((error.reason, error.detail))
    together = []
    for part, found in by_halves(bind_rows, rows, bound):
        if isinstance(found, RecordError):
            assert len(part) == 1
            together.append((found.reason, found.detail))
        else:
            assert [ref.line for ref in found] == [row.line for row in part]
            together += found
    assert together == singly


def test_rejects_name_the_table_column():
    bound = binding(preset("image_classification"), {"label": ("cat",)}, {"label": "pet"})
    with pytest.raises(RecordError) as raised:
        bind(text_row(image="a.jpg", pet="fox"), bound)
    assert raised.value.reason is Reason.UNKNOWN_LABEL
    assert raised.value.detail == "column 'pet': 'fox' is not one of the 1 classes"


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


@pytest.mark.parametrize("removed", ["photos/1.jpg", "photos/2.jpg"])
def test_a_removed_key_is_rejected(removed):
    bound = replace(CLASSIFICATION, removed_keys=frozenset({digest_of_key(removed)}))
    row = text_row(image="photos/1.jpg", label="dog")
    if removed == "photos/2.jpg":
        assert bind(row, bound) == bind(row, CLASSIFICATION)
        return
    with pytest.raises(RecordError, match="removed from an earlier version") as caught:
        bind(row, bound)
    assert caught.value.reason is Reason.REMOVED_KEY


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
    ("path", "table", "root", "expected"),
    [
        ("a.jpg", "/d/t.csv", None, "/d/a.jpg"),
        ("x/a.jpg", "d/t.csv", None, "d/x/a.jpg"),
        ("a.jpg", "t.csv", None, "a.jpg"),
        ("a.jpg", "/t.csv", None, "/a.jpg"),
        ("a.jpg", "gs://b/t.csv", None, "gs://b/a.jpg"),
        ("a.jpg", "gs://b/d/t.csv", "s3://c", "s3://c/a.jpg"),
        ("a.jpg", "/d/t.csv", "/root/", "/root/a.jpg"),
        ("a.jpg", "/d/t.csv", "", "a.jpg"),
        ("/abs/a.jpg", "/d/t.csv", "/root", "/abs/a.jpg"),
        ("gs://b/a.jpg", "/d/t.csv", "/root", "gs://b/a.jpg"),
        ("a b%20ü?#[1].jpg", "/d/t.csv", None, "/d/a b%20ü?#[1].jpg"),
        ("", "/d/t.csv", "/root", ""),
    ],
)
def test_paths(path, table, root, expected):
    assert resolve_path(path, table, root) == expected


def test_split_names_that_are_invalid_in_file_names_are_rejected():
    bound = binding(preset("image_classification"), {"label": ("cat",)}, split_column="part")
    row = {"image": "a.jpg", "label": "cat"}
    assert bind(text_row(**row, part="s" * 50), bound).split == "s" * 50
    with pytest.raises(RecordError, match="expected up to 50 letters, digits and _") as raised:
        bind(text_row(**row, part="s" * 51), bound)
    assert raised.value.reason is Reason.UNKNOWN_SPLIT
