"""Compares the geometry of images with the EXIF specification and with Pillow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from recordmill.schemas.records import RowBoxes
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.geometry import (
    PointMap,
    _oriented_point,
    geometry_of,
    inverse_orientation,
    oriented_size,
)
from recordmill.transforms.functional.images.pixels import resized
from tests.annotations import Case, placement, seen_at
from tests.images import image

SIDES = st.integers(1, 60)
ORIENTATIONS = st.integers(1, 8)
SETTINGS = st.one_of(
    st.just({}),
    st.builds(lambda n: {"max_side": n}, SIDES),
    st.builds(
        lambda w, h, mode: {"resize": f"{w}x{h} {mode}"},
        SIDES,
        SIDES,
        st.sampled_from(["fit", "pad", "crop", "exact"]),
    ),
)


@given(SIDES, SIDES, ORIENTATIONS, st.floats(0, 1), st.floats(0, 1))
def test_points_are_oriented_by_the_exif_table(width, height, orientation, x, y):
    x, y = x * width, y * height
    case = Case(width, height, orientation, {}, "stored")
    assert oriented_size((width, height), orientation) == case.shown
    assert _oriented_point((x, y), (width, height), orientation) == seen_at(x, y, case)


@given(SIDES, SIDES, ORIENTATIONS, st.floats(0, 1), st.floats(0, 1))
def test_orientations_can_be_reverted(width, height, orientation, x, y):
    there = _oriented_point((x, y), (width, height), orientation)
    shown = oriented_size((width, height), orientation)
    assert _oriented_point(there, shown, inverse_orientation(orientation)) == pytest.approx(
        (x, y), abs=1e-9
    )


@given(SIDES, SIDES, ORIENTATIONS, SETTINGS, st.sampled_from(["apply", "record"]))
def test_scale_and_offset_match_the_formulas(width, height, orientation, options, turning):
    settings = {**options, "orientation": turning}
    case = Case(width, height, orientation, settings, "stored")
    size, scale, (left, top) = placement(case)
    found = geometry_of((width, height), orientation, ImageSettings(**settings))
    assert found.size == size
    assert found.scale == pytest.approx([float(s) for s in scale])
    x = found.offset[0] - float(found.crop[0]) * found.scale[0]
    y = found.offset[1] - float(found.crop[1]) * found.scale[1]
    assert (x, y) == pytest.approx((float(left), float(top)), abs=1e-9)


@pytest.mark.parametrize("size", [(40, 30), (30, 40), (7, 50), (33, 33), (1, 9)], ids=str)
@pytest.mark.parametrize("target", [(20, 20), (50, 10), (3, 9), (64, 48)], ids=str)
def test_pixels_agree_with_pad_and_fit_of_pillow(size, target):
    drawn = image(*size)
    for mode, reference in (("pad", ImageOps.pad), ("crop", ImageOps.fit)):
        settings = ImageSettings(resize=f"{target[0]}x{target[1]} {mode}")
        found = resized(drawn, geometry_of(size, 1, settings))
        expected = reference(drawn, target, Image.Resampling.LANCZOS)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_sliver_keeps_one_pixel():
    settings = ImageSettings(resize="10x10 pad")
    assert geometry_of((1000, 1), 1, settings).content == (10, 1)
    assert resized(image(1000, 1), geometry_of((1000, 1), 1, settings)).size == (10, 10)


def test_points_are_turned_only_if_the_image_is():
    point, size, row = (1.0, 2.0), (20, 10), RowBoxes("pixel", [])
    turned = geometry_of(size, 6, ImageSettings())
    as_it_is = geometry_of(size, 6, ImageSettings(orientation="record"))
    assert PointMap.of(row, turned, "displayed").turned(point) == point
    assert PointMap.of(row, as_it_is, "stored").turned(point) == point
    assert PointMap.of(row, turned, "stored").turned(point) == (8.0, 1.0)
    assert PointMap.of(row, as_it_is, "displayed").turned((8.0, 1.0)) == point
