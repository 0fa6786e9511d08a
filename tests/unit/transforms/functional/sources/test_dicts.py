"""Rows that are dicts: their key, their image, and their identity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Projection
from recordmill.transforms.functional.sources.dicts import row_of_dict

PROJECTION = Projection(("id", "image", "label"), image="image")


class Named(NamedTuple):
    """A row of a typed pipeline."""

    image: str
    label: int


def row_of(element: Any, key_column: str | None = None, projection: Projection = PROJECTION) -> Row:
    found = row_of_dict(element, projection, key_column)
    assert isinstance(found, Row)
    return found


def test_the_key_is_the_image_path_or_the_key_column() -> None:
    by_image = row_of({"image": "a.jpg", "label": 3, "unused": object()})
    assert (by_image.values, by_image.source) == ({"image": "a.jpg", "label": 3}, "row a.jpg")
    assert row_of({"image": "a.jpg", "id": 7}, "id").source == "row 7"
    assert row_of(Named("a.jpg", 3)) == by_image


def test_numpy_values_become_python_values() -> None:
    row = row_of({"image": "a.jpg", "label": np.int64(3), "id": np.array([1.5, 2.5])})
    assert row.values == {"image": "a.jpg", "label": 3, "id": [1.5, 2.5]}
    assert type(row.values["label"]) is int


def test_rows_with_the_same_key_are_distinguished_by_their_values() -> None:
    first = row_of({"image": "a.jpg", "label": 3})
    assert first.line < 0
    assert first == row_of({"label": 3, "image": "a.jpg"})
    assert first.file == row_of({"image": "a.jpg", "label": 4}).file
    assert first.line != row_of({"image": "a.jpg", "label": 4}).line
    one, other = (
        row_of_dict({"image": data, "id": "k"}, PROJECTION, "id") for data in (b"1", b"2")
    )
    assert isinstance(one, Row)
    assert isinstance(other, Row)
    assert (one.file, one.image) == ("row k", b"1")
    assert one.line != other.line


def test_an_image_is_a_path_bytes_or_both() -> None:
    both = row_of_dict({"image": {"bytes": b"jpeg", "path": "a.jpg"}}, PROJECTION, None)
    assert isinstance(both, Row)
    assert (both.values, both.source, both.image) == (
        {"image": "a.jpg"},
        "row a.jpg",
        b"jpeg",
    )
    only_path = row_of({"image": {"bytes": None, "path": "a.jpg"}})
    assert (only_path.values, only_path.source) == ({"image": "a.jpg"}, "row a.jpg")
    named = row_of_dict({"image": b"jpeg", "id": "k"}, PROJECTION, "id")
    assert isinstance(named, Row)
    assert named.values == {"id": "k", "image": None}


@pytest.mark.parametrize(
    ("element", "source", "reason", "detail"),
    [
        (3, "row 3", Reason.MALFORMED_ROW, "expected a dict with a value for each column, got int"),
        (
            {1: 2},
            "row {1: 2}",
            Reason.MALFORMED_ROW,
            "expected a dict with a value for each column, got dict",
        ),
        (
            {"image": b"jpeg", "label": 3},
            "row {'image': None, 'label': 3}",
            Reason.MISSING_VALUE,
            "the image has no path to use as the key. Set key_column.",
        ),
        (
            {"img": "a.jpg", "label": 3},
            "row {'img': 'a.jpg', 'label': 3}",
            Reason.MISSING_VALUE,
            "the row has no column 'image' (did you mean 'img'?); it has: img, label. "
            "Name it with columns.",
        ),
        (
            {"image": "a.jpg", "lable": 3},
            "row {'image': 'a.jpg', 'lable': 3}",
            Reason.MISSING_VALUE,
            "the row has no column 'label' (did you mean 'lable'?); it has: image, lable. "
            "Name it with columns.",
        ),
    ],
)
def test_values_that_are_not_rows_are_rejected(
    element: Any, source: str, reason: Reason, detail: str
) -> None:
    asked = replace(PROJECTION, required=("image", "label"))
    assert row_of_dict(element, asked, None) == Reject("", "", source, reason, detail)
