"""Run lengths and polygons, against COCO's own code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as coco

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images import outlines
from recordmill.transforms.functional.images.outlines import checked_outlines, decompressed
from recordmill.transforms.functional.images.outlines import drawn as drawn_checked

MASKS = st.tuples(st.integers(1, 40), st.integers(1, 40)).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape, elements=st.integers(0, 1))
)


def drawn(segments, size):
    """Returns what is drawn of outlines as rows have them."""
    ids = [id_ for id_, _ in segments]
    checked = checked_outlines(outline for _, outline in segments)
    return drawn_checked(list(zip(ids, checked, strict=True)), size)


def uncompressed(mask):
    """Returns a mask's run lengths, counted one pixel after the other."""
    runs, inside = [0], 0
    for pixel in mask.ravel(order="F"):
        if pixel != inside:
            runs.append(0)
            inside = pixel
        runs[-1] += 1
    return {"size": list(mask.shape), "counts": runs}


@given(MASKS)
def test_run_lengths_are_read_as_coco_writes_them(mask):
    size = mask.shape[::-1]
    compressed = coco.encode(np.asfortranarray(mask))
    as_text = {"size": compressed["size"], "counts": compressed["counts"].decode("ascii")}
    for outline in (compressed, as_text, uncompressed(mask)):
        np.testing.assert_array_equal(drawn([(1, outline)], size), mask)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_compressed_counts(runs):
    size = [sum(runs), 1]
    compressed = coco.frPyObjects({"size": size, "counts": runs}, *size)
    assert decompressed(compressed["counts"]) == runs


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.lists(
        st.lists(st.floats(-10, 50), min_size=6, max_size=12).filter(lambda p: len(p) % 2 == 0),
        min_size=1,
        max_size=3,
    ),
)
def test_polygons_are_filled_as_coco_fills_them(width, height, polygons):
    far = 2 * max(width, height)
    polygons = [[min(max(n, -far), far) for n in polygon] for polygon in polygons]
    expected = coco.decode(coco.merge(coco.frPyObjects(polygons, height, width)))
    np.testing.assert_array_equal(drawn([(1, polygons)], (width, height)), expected)


def test_later_objects_lie_over_earlier_ones():
    left = {"size": [1, 4], "counts": [0, 3, 1]}
    right = {"size": [1, 4], "counts": [2, 2]}
    assert drawn([(5, left), (300, right)], (4, 1)).tolist() == [[5, 5, 300, 300]]
    assert drawn([], (2, 1)).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("outline", "reason"),
    [
        pytest.param({"size": [4, 1], "counts": [4]}, Reason.INVALID_DIMENSIONS, id="turned"),
        pytest.param({"size": [1, 4], "counts": [3]}, Reason.WRONG_TYPE, id="too short"),
        pytest.param({"size": [1, 4], "counts": [9, -5]}, Reason.WRONG_TYPE, id="negative"),
        pytest.param({"size": [1, 4], "counts": [1.5, 2.5]}, Reason.WRONG_TYPE, id="no integers"),
        pytest.param({"size": [1, 4], "counts": "R"}, Reason.WRONG_TYPE, id="cut short"),
        pytest.param({"size": [1, 4], "counts": "o" * 10**5}, Reason.WRONG_TYPE, id="no end"),
        pytest.param({"counts": "04"}, Reason.WRONG_TYPE, id="no size"),
        pytest.param({"size": [1, 4]}, Reason.WRONG_TYPE, id="no counts"),
        pytest.param([[0, 0, 1, 1]], Reason.WRONG_TYPE, id="two points"),
        pytest.param([[0, 0, 1, 1, 2]], Reason.WRONG_TYPE, id="half a point"),
        pytest.param([[0, 0, 1, 1, 2, "2"]], Reason.WRONG_TYPE, id="text"),
        pytest.param([[0, 0, 1, 1, 2, float("nan")]], Reason.WRONG_TYPE, id="NaN"),
        pytest.param([[0, 0, 1, 1, 2, 1e12]], Reason.WRONG_TYPE, id="far away"),
        pytest.param([0, 0, 1, 1, 2, 2], Reason.WRONG_TYPE, id="a polygon, no list of them"),
        pytest.param([[0, 0, 1, 1, 2, 10**400]], Reason.WRONG_TYPE, id="beyond floats"),
        pytest.param({"size": [1, 4], "counts": 5}, Reason.WRONG_TYPE, id="one count"),
        pytest.param({"size": [1, 4], "counts": [True] * 4}, Reason.WRONG_TYPE, id="booleans"),
        pytest.param({"size": [1, 4], "counts": [10**400]}, Reason.WRONG_TYPE, id="too long"),
        pytest.param({"size": [1, 4], "counts": "\ud800"}, Reason.WRONG_TYPE, id="a surrogate"),
        pytest.param(
            {"size": [True, 4], "counts": [4]}, Reason.WRONG_TYPE, id="a size of booleans"
        ),
        pytest.param([], Reason.WRONG_TYPE, id="no polygon"),
        pytest.param("[[0,0,1]]", Reason.WRONG_TYPE, id="a text"),
        pytest.param(None, Reason.WRONG_TYPE, id="nothing"),
    ],
)
def test_what_is_no_outline(outline, reason):
    whole = {"size": [1, 4], "counts": [0, 4]}
    with pytest.raises(RecordError) as raised:
        drawn([(1, whole), (1, outline)], (4, 1))
    assert raised.value.reason is reason
    assert raised.value.detail.startswith("outline 1: ")


def test_a_polygon_that_coco_would_need_all_memory_for_is_a_reject():
    zigzag = [[0, 0, 20_000, 20_000] * 1_000]
    with pytest.raises(RecordError, match=r"outline 0: .* 6,710,886 pixels of edges") as raised:
        drawn([(1, zigzag)], (10_000, 10_000))
    assert raised.value.reason is Reason.TOO_MANY_PIXELS


def test_objects_that_cover_an_image_too_often_are_a_reject(monkeypatch):
    monkeypatch.setattr(outlines, "MAX_DRAWN_PIXELS", 20)
    whole = {"size": [1, 4], "counts": [0, 4]}
    assert drawn([(1, whole)] * 5, (4, 1)).tolist() == [[1, 1, 1, 1]]
    with pytest.raises(RecordError, match="outline 5: the objects have more than 20 pixels in all"):
        drawn([(1, whole)] * 6, (4, 1))
