"""Tests of the image references of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.removal import digest_of_key
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding, bind_rows, by_halves
from tests.binding import bind


def text_row(**values):
    return Row(values, "/data/t.csv", 17, is_text=True)


def typed_row(**values):
    return Row(values, "/data/t.parquet", 17)


def binding(schema, classes=None, columns=None, **options):
    return Binding(ResolvedSchema(schema, classes or {}), columns or {}, **options)


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


def test_an_error_does_not_keep_its_row():
    bound = binding(preset("image_classification"), {"label": ("cat",)}, {"label": "pet"})
    rows = RowBatch.of([text_row(image="a.jpg", pet="fox")])
    ((_, error),) = by_halves(bind_rows, rows, bound)
    assert isinstance(error, RecordError)
    assert error.__traceback__ is None


@pytest.mark.parametrize("column", ["image", "id"])
def test_keys_and_paths_have_a_maximum_length(column):
    key = "id" if column == "id" else None
    bound = replace(CLASSIFICATION, key_column=key)
    row = {"image": "a.jpg", "id": "1", "label": "dog"}
    assert bind(text_row(**{**row, column: "x" * 8192}), bound).key == "x" * 8192
    with pytest.raises(RecordError, match=rf"malformed_row: column '{column}': expected at most"):
        bind(text_row(**{**row, column: "x" * 8193}), bound)


def test_rejects_name_the_table_column():
    bound = binding(preset("image_classification"), {"label": ("cat",)}, {"label": "pet"})
    with pytest.raises(RecordError) as raised:
        bind(text_row(image="a.jpg", pet="fox"), bound)
    assert raised.value.reason is Reason.UNKNOWN_LABEL
    assert raised.value.detail == "column 'pet': 'fox' is not one of the 1 classes"


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
