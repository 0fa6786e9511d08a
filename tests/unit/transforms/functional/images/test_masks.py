"""Tests of masks from files and outlines, compared with pycocotools."""

from __future__ import annotations

import io
import zlib
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from pycocotools import mask as coco

from recordmill.schemas.features import Schema
from recordmill.schemas.records import RowOutlines, StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings, MaskSettings
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images import masks
from recordmill.transforms.functional.images.geometry import IGNORED, OTHER_GRAYS, geometry_of
from recordmill.transforms.functional.images.masks import (
    _decompress_counts,
    _draw_segments,
    _encode_mask,
    _read_ids,
    checked_outlines,
    mask_from_file,
    mask_from_outlines,
)
from tests.images import jpeg, png, png_chunk, png_header

SIZE = (5, 3)


def file_of(ids, mode, **options):
    """Returns a PNG of class ids, in one of Pillow's modes."""
    if mode == "I;16":
        drawn = Image.fromarray(np.asarray(ids, np.uint16))
    else:
        drawn = Image.fromarray(np.asarray(ids, np.uint8), mode if mode != "1" else "L")
    if mode == "1":
        drawn = Image.fromarray(np.asarray(ids, bool))
    if mode == "P":
        drawn.putpalette([(7 * i) % 256 for i in range(768)])  # not in the order of the ids
    stream = io.BytesIO()
    drawn.save(stream, "PNG", **options)
    return stream.getvalue()


def ids_of(largest):
    return np.arange(15).reshape(3, 5) * 7919 % (largest + 1)


def decoded(data):
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("mode", "largest", "options"),
    [
        ("L", 255, {}),
        ("P", 255, {}),
        ("P", 15, {"bits": 4}),
        ("P", 3, {"bits": 2}),
        ("P", 1, {"bits": 1}),
        ("P", 255, {"transparency": 3}),
        ("1", 1, {}),
        ("I;16", 65_535, {}),
    ],
    ids=str,
)
def test_ids_are_read_unchanged(mode, largest, options):
    ids = ids_of(largest)
    np.testing.assert_array_equal(_read_ids(file_of(ids, mode, **options), SIZE, "stored"), ids)


@pytest.mark.parametrize("depth", [2, 4])
def test_gray_of_few_bits_is_not_scaled(depth):
    rows = b"\0" + (b"\x1b" if depth == 2 else b"\x01\x23")  # 0, 1, 2, 3
    data = png_header(4, 1, depth, 0) + png_chunk(b"IDAT", zlib.compress(rows))
    data += png_chunk(b"IEND", b"")
    assert _read_ids(data, (4, 1), "stored").tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(png(5, 3), Reason.UNSUPPORTED_FEATURE, id="colors"),
        pytest.param(png(5, 3, mode="LA"), Reason.UNSUPPORTED_FEATURE, id="gray with alpha"),
        pytest.param(jpeg(5, 3, mode="L"), Reason.UNSUPPORTED_FORMAT, id="JPEG"),
        pytest.param(png(3, 5, mode="L"), Reason.INVALID_DIMENSIONS, id="turned"),
        pytest.param(png(5, 3, mode="L")[:-20], Reason.TRUNCATED, id="cut short"),
        pytest.param(b"", Reason.EMPTY_FILE, id="empty"),
        pytest.param(b"<html>", Reason.NOT_AN_IMAGE, id="a web page"),
    ],
)
def test_files_that_are_not_masks_are_rejected(data, reason):
    with pytest.raises(RecordError) as raised:
        _read_ids(data, SIZE, "displayed")
    assert raised.value.reason is reason


def test_a_mask_of_another_size_is_rejected():
    with pytest.raises(RecordError, match=r"3 x 5 pixels; its image is 5 x 3 as displayed"):
        _read_ids(png(3, 5, mode="L"), SIZE, "displayed")


def test_ids_beyond_the_bit_depth_are_rejected():
    geometry = geometry_of(SIZE, 1, ImageSettings())
    ids = np.full((3, 5), 256)
    with pytest.raises(
        RecordError, match=r"256 in a mask of 8 bits\. Set masks: \{bit_depth: 16\}"
    ):
        _encode_mask(ids, geometry, MaskSettings())
    deep = decoded(_encode_mask(ids, geometry, MaskSettings(bit_depth=16)))
    assert (deep.dtype, deep.tolist()) == (np.uint16, ids.tolist())
    with pytest.raises(RecordError, match=r"class id 65536 in a mask of 16 bits$"):
        _encode_mask(ids * 256, geometry, MaskSettings(bit_depth=16))


def test_ids_of_outlines_beyond_the_bit_depth_are_rejected():
    schema = preset("segmentation")
    whole = {"size": [3, 5], "counts": [0, 15]}
    for class_id, message in (
        (256, r"256 in a mask of 8 bits\. Set"),
        (-1, "-1 in a mask of 8 bits$"),
    ):
        with pytest.raises(RecordError, match=f"class id {message}"):
            mask_from_outlines(
                RowOutlines("pixel", [(class_id, whole)]), stored_image(SIZE), schema
            )


def stored_image(size, orientation=1):
    return StoredImage(b"", "jpeg", 0, 0, 3, "", orientation=orientation, source_size=size)


def test_a_mask_from_outlines_equals_the_mask_from_a_file():
    schema = preset("segmentation")
    left = {"size": [3, 5], "counts": [0, 6, 9]}
    drawn = mask_from_outlines(RowOutlines("pixel", [(4, left)]), stored_image((3, 5), 6), schema)
    ids = np.zeros((3, 5))
    ids[:, :2] = 4
    assert (drawn, ()) == mask_from_file(file_of(ids, "L"), stored_image((3, 5), 6), schema)
    np.testing.assert_array_equal(decoded(drawn), ids)


def test_an_id_of_no_class_in_a_mask_file_is_rejected():
    schema, ids, image = preset("segmentation"), np.zeros((3, 5)), stored_image(SIZE)
    ids[0], ids[1] = 255, 2
    known, remarks = mask_from_file(file_of(ids, "L"), image, schema, classes=3)
    assert remarks == ()
    np.testing.assert_array_equal(decoded(known), ids)
    with pytest.raises(
        RecordError, match=r"^unknown_label: id 2 is not within 0 to 1, or 255 \(ignored\)$"
    ) as raised:
        mask_from_file(file_of(ids, "L"), image, schema, classes=2)
    assert raised.value.reason is Reason.UNKNOWN_LABEL


@pytest.mark.parametrize(("id_", "expected"), [(255, (IGNORED,)), (1, ()), (0, ())])
def test_a_mask_whose_foreground_is_ignored_is_found(id_, expected):
    ids = np.zeros((3, 5))
    ids[0] = id_
    made = mask_from_file(file_of(ids, "L"), stored_image(SIZE), preset("segmentation"), classes=2)
    assert made[1] == expected


@pytest.mark.parametrize(
    ("edge", "width", "expected"),
    [
        (191, 1, (IGNORED,)),
        (191, 4, ()),
        (64, 1, ()),
        (20, 1, ()),
    ],  # 255 around a class is a border
)
def test_a_foreground_with_smooth_edges_is_found(edge, width, expected):
    ids = np.zeros((3, 5))
    ids[0] = 255
    ids[1, :width] = edge
    ids[1, width:] = 0
    ids[0, : 5 - width] = 255 if width == 1 else 0
    file, image, schema = file_of(ids, "L"), stored_image(SIZE), preset("segmentation")
    assert mask_from_file(file, image, schema)[1] == expected
    assert mask_from_file(file, image, schema, classes=200)[1] == ()  # 191 is a class


@pytest.mark.parametrize(
    ("palette", "remarks"),
    [
        ([7, 7, 7, 3, 3, 3], (OTHER_GRAYS,)),
        ([0, 0, 0, 7, 7, 7], (OTHER_GRAYS,)),
        ([0, 0, 0, 255, 255, 255], ()),
        ([0, 0, 0, 1, 1, 1, 9, 9, 9], ()),  # the last one is not used
        ([0, 0, 0, 128, 0, 0], ()),
    ],
)
def test_a_palette_with_other_grays_is_found(palette, remarks):
    file, stream = Image.new("P", SIZE), io.BytesIO()
    file.putpalette(palette)
    file.putpixel((1, 1), 1)
    file.save(stream, "PNG")
    data, found = mask_from_file(
        stream.getvalue(), stored_image(SIZE), preset("segmentation"), classes=2
    )
    assert found == remarks
    assert decoded(data)[1, 1] == 1


def test_padding_has_the_configured_id():
    schema = preset("segmentation").model_dump(by_alias=True, exclude={"image", "masks"})
    schema = Schema.model_validate(
        {**schema, "image": {"resize": "5x5 pad"}, "masks": {"padding": 255}}
    )
    made = decoded(mask_from_file(file_of(ids_of(9), "L"), stored_image(SIZE), schema)[0])
    assert made[1:4].tolist() == ids_of(9).tolist()
    assert made[0].tolist() == made[4].tolist() == [255] * 5
    with pytest.raises(ValueError, match="expected at most 255, got 256"):
        MaskSettings(padding=256)


MASKS = st.tuples(st.integers(1, 40), st.integers(1, 40)).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape, elements=st.integers(0, 1))
)


def drawn(segments, size):
    """Returns the mask of the outlines of a row."""
    ids = [id_ for id_, _ in segments]
    checked = checked_outlines(outline for _, outline in segments)
    return _draw_segments(list(zip(ids, checked, strict=True)), size)


def uncompressed(mask):
    """Counts the run lengths of a mask pixel by pixel."""
    runs, inside = [0], 0
    for pixel in mask.ravel(order="F"):
        if pixel != inside:
            runs.append(0)
            inside = pixel
        runs[-1] += 1
    return {"size": list(mask.shape), "counts": runs}


@given(MASKS)
def test_run_lengths_of_coco_are_decoded(mask):
    size = mask.shape[::-1]
    compressed = coco.encode(np.asfortranarray(mask))
    as_text = {"size": compressed["size"], "counts": compressed["counts"].decode("ascii")}
    for outline in (compressed, as_text, uncompressed(mask)):
        np.testing.assert_array_equal(drawn([(1, outline)], size), mask)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_compressed_counts(runs):
    size = [sum(runs), 1]
    compressed = coco.frPyObjects({"size": size, "counts": runs}, *size)
    assert _decompress_counts(compressed["counts"]) == runs


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.lists(
        st.lists(st.floats(-10, 50), min_size=6, max_size=12).filter(lambda p: len(p) % 2 == 0),
        min_size=1,
        max_size=3,
    ),
)
def test_polygons_are_filled_as_by_coco(width, height, polygons):
    far = 2 * max(width, height)
    polygons = [[min(max(n, -far), far) for n in polygon] for polygon in polygons]
    expected = coco.decode(coco.merge(coco.frPyObjects(polygons, height, width)))
    np.testing.assert_array_equal(drawn([(1, polygons)], (width, height)), expected)


def test_later_objects_cover_earlier_ones():
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
def test_an_invalid_outline_is_rejected(outline, reason):
    whole = {"size": [1, 4], "counts": [0, 4]}
    with pytest.raises(RecordError) as raised:
        drawn([(1, whole), (1, outline)], (4, 1))
    assert raised.value.reason is reason
    assert raised.value.detail.startswith("outline 1: ")


def kaggle(mask, order):
    """Encodes a mask as the kernels of Kaggle's competitions do."""
    pixels = mask.T.flatten() if order == "columns" else mask.flatten()
    changes = np.where(np.diff(np.concatenate([[0], pixels, [0]])))[0] + 1
    changes[1::2] -= changes[::2]
    return " ".join(map(str, changes))


@given(
    arrays.arrays(
        np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.integers(0, 1)
    )
)
def test_run_lengths_of_kaggle_are_decoded(mask):
    for order in ("columns", "rows") if mask.any() else ():
        outlines = masks.checked_outlines([kaggle(mask, order)], order)
        ids = _draw_segments([(1, outlines[0])], mask.shape[::-1])
        np.testing.assert_array_equal(ids, mask)


@pytest.mark.parametrize(
    ("text", "order", "message"),
    [
        ("1 3", None, "outline 0: the order of pixels in run lengths is not stated. Set --masks"),
        ("0 3", "rows", "outline 0: expected run lengths whose starts ascend from 1, got '0 3'"),
        ("5 3 7 1", "rows", "outline 0: expected run lengths whose starts ascend"),
        ("1 0", "columns", "outline 0: expected run lengths whose starts ascend"),
        ("1 3 5", "columns", "outline 0: expected polygons"),
        ("10 4", "columns", "outline 0: run lengths up to pixel 13; the image has 12"),
    ],
)
def test_run_lengths_of_kaggle_that_are_invalid_are_rejected(text, order, message):
    with pytest.raises(RecordError) as raised:
        _draw_segments([(1, *masks.checked_outlines([text], order))], (4, 3))
    assert raised.value.detail.startswith(message)


def test_run_lengths_are_of_the_size_that_is_stated():
    (outline,) = masks.checked_outlines(["1 3"], "rows")
    geometry = geometry_of((4, 2), 1, ImageSettings())
    for size, fits in (((4.0, 2.0), True), (None, True), ((8.0, 4.0), False)):
        outlines = RowOutlines("pixel", [(1, outline)], size)
        with nullcontext() if fits else pytest.raises(RecordError, match="have another size"):
            assert masks._in_pixels(outlines, geometry, MaskSettings()) == [(1, outline)]


def test_a_polygon_with_too_many_edge_points_is_rejected():
    zigzag = [[0, 0, 20_000, 20_000] * 1_000]
    with pytest.raises(RecordError, match=r"outline 0: .* 6,710,886 pixels of edges") as raised:
        drawn([(1, zigzag)], (10_000, 10_000))
    assert raised.value.reason is Reason.TOO_MANY_PIXELS


def test_objects_with_too_many_pixels_are_rejected(monkeypatch):
    monkeypatch.setattr(masks, "MAX_DRAWN_PIXELS", 20)
    whole = {"size": [1, 4], "counts": [0, 4]}
    assert drawn([(1, whole)] * 5, (4, 1)).tolist() == [[1, 1, 1, 1]]
    with pytest.raises(RecordError, match=r"outline 5: .* more than 20 pixels in total"):
        drawn([(1, whole)] * 6, (4, 1))
