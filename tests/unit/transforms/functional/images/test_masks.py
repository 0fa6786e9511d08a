"""Masks: class ids exactly as the file has them, whatever its palette and depth."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.features import Schema
from recordmill.schemas.presets import preset
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings, MaskSettings
from recordmill.transforms.functional.images.geometry import geometry_of
from recordmill.transforms.functional.images.masks import (
    encoded,
    mask_of_file,
    mask_of_outlines,
    read_ids,
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
def test_ids_are_read_as_they_are(mode, largest, options):
    ids = ids_of(largest)
    np.testing.assert_array_equal(read_ids(file_of(ids, mode, **options), SIZE, "stored"), ids)


@pytest.mark.parametrize("depth", [2, 4])
def test_gray_of_few_bits_is_not_scaled(depth):
    rows = b"\0" + (b"\x1b" if depth == 2 else b"\x01\x23")  # 0, 1, 2, 3
    data = png_header(4, 1, depth, 0) + png_chunk(b"IDAT", zlib.compress(rows))
    data += png_chunk(b"IEND", b"")
    assert read_ids(data, (4, 1), "stored").tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(png(5, 3), Reason.UNSUPPORTED_FEATURE, id="colours"),
        pytest.param(png(5, 3, mode="LA"), Reason.UNSUPPORTED_FEATURE, id="gray with alpha"),
        pytest.param(jpeg(5, 3, mode="L"), Reason.UNSUPPORTED_FORMAT, id="JPEG"),
        pytest.param(png(3, 5, mode="L"), Reason.INVALID_DIMENSIONS, id="turned"),
        pytest.param(png(5, 3, mode="L")[:-20], Reason.TRUNCATED, id="cut short"),
        pytest.param(b"", Reason.EMPTY_FILE, id="empty"),
        pytest.param(b"<html>", Reason.NOT_AN_IMAGE, id="a web page"),
    ],
)
def test_files_that_are_no_masks(data, reason):
    with pytest.raises(RecordError) as raised:
        read_ids(data, SIZE, "displayed")
    assert raised.value.reason is reason


def test_another_size_is_told_with_what_can_be_done():
    with pytest.raises(RecordError, match=r"3 x 5 pixels; its picture is 5 x 3 as displayed"):
        read_ids(png(3, 5, mode="L"), SIZE, "displayed")


def test_ids_beyond_the_bit_depth():
    geometry = geometry_of(SIZE, 1, ImageSettings())
    ids = np.full((3, 5), 256)
    with pytest.raises(RecordError, match=r"256 in a mask of 8 bits; set masks: \{bit_depth: 16\}"):
        encoded(ids, geometry, MaskSettings())
    deep = decoded(encoded(ids, geometry, MaskSettings(bit_depth=16)))
    assert (deep.dtype, deep.tolist()) == (np.uint16, ids.tolist())
    with pytest.raises(RecordError, match=r"class id 65536 in a mask of 16 bits$"):
        encoded(ids * 256, geometry, MaskSettings(bit_depth=16))


def test_ids_of_outlines_that_no_mask_can_hold():
    schema = preset("segmentation")
    whole = {"size": [3, 5], "counts": [0, 15]}
    for class_id, told in ((256, "256 in a mask of 8 bits; set"), (-1, "-1 in a mask of 8 bits$")):
        with pytest.raises(RecordError, match=f"class id {told}"):
            mask_of_outlines([(class_id, whole)], stored_image(SIZE), schema)


def stored_image(size, orientation=1):
    return StoredImage(b"", "jpeg", 0, 0, 3, "", orientation=orientation, source_size=size)


def test_a_mask_of_outlines_is_that_of_the_same_pixels():
    schema = preset("segmentation")
    left = {"size": [3, 5], "counts": [0, 6, 9]}
    drawn = mask_of_outlines([(4, left)], stored_image((3, 5), 6), schema)
    ids = np.zeros((3, 5))
    ids[:, :2] = 4
    assert drawn == mask_of_file(file_of(ids, "L"), stored_image((3, 5), 6), schema)
    np.testing.assert_array_equal(decoded(drawn), ids)


def test_padding_has_an_id_of_its_own():
    schema = preset("segmentation").model_dump(by_alias=True, exclude={"image", "masks"})
    schema = Schema.model_validate(
        {**schema, "image": {"resize": "5x5 pad"}, "masks": {"padding": 255}}
    )
    made = decoded(mask_of_file(file_of(ids_of(9), "L"), stored_image(SIZE), schema))
    assert made[1:4].tolist() == ids_of(9).tolist()
    assert made[0].tolist() == made[4].tolist() == [255] * 5
    with pytest.raises(ValueError, match="256 does not fit 8 bits"):
        MaskSettings(padding=256)
