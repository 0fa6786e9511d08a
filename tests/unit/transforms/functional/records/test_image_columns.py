"""Tests of the columns that describe images in the record index."""

from __future__ import annotations

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.records import ImageShape, StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.records.image_columns import (
    IMAGE_COLUMNS,
    ImageColumns,
    check_image,
    describe,
)

RAMP = ImageShape("jpeg", 640, 480, 3, 999, bytes(i * 4 for i in range(64)) * 64)
UNIFORM = RAMP._replace(thumbnail=bytes([9]) * 4096)
NOT_DECODED = RAMP._replace(thumbnail=b"")


def check(shape: ImageShape, **options: object) -> None:
    """Checks an image with some properties, as options ask for."""
    size = shape.height, shape.width
    image = StoredImage(bytes(shape.bytes), shape.format, *size, shape.channels, "")
    config = ConvertConfig(inputs=("t.csv",), output="out", name="birds", **options)
    check_image(image._replace(thumbnail=shape.thumbnail), config)


def test_values_are_null_where_they_are_unknown():
    ramp, uniform, not_decoded, missing = describe([RAMP, UNIFORM, NOT_DECODED, None]).to_pylist()
    assert (ramp["width"], ramp["height"], ramp["luma_p5"], ramp["luma_p99"]) == (640, 480, 12, 252)
    assert (ramp["entropy"], len(ramp["phash"])) == (6.0, 64)
    assert (uniform["luma_p99"], uniform["luma_std"], uniform["phash"]) == (9, 0.0, None)
    assert not_decoded == dict.fromkeys(ramp) | {"width": 640, "height": 480}
    assert missing == dict.fromkeys(ramp)


def test_nothing_is_described_without_images():
    assert (ImageColumns().take().num_rows, ImageColumns().take().schema) == (0, IMAGE_COLUMNS)


def test_images_are_taken_once_and_in_order():
    columns = ImageColumns()
    shapes = [[RAMP, UNIFORM, NOT_DECODED, None][i % 4] for i in range(1001)]
    for shape in shapes:
        columns.add(shape)
    assert columns.take().to_pylist() == describe(shapes).to_pylist()
    columns.add(RAMP)
    assert columns.take().to_pylist() == describe([RAMP]).to_pylist()


def test_quality_issues_are_rejected_if_they_are_listed():
    check(RAMP, reject_quality="blank,tiny")
    check(UNIFORM, reject_quality="bright,tiny")
    with pytest.raises(RecordError) as rejected:
        check(UNIFORM, reject_quality="tiny,blank")
    assert rejected.value.reason is Reason.LOW_QUALITY
    assert rejected.value.detail == "blank: expected luma_std of at least 4, got 0"
    with pytest.raises(RecordError, match="tiny: expected side of at least 32, got 31"):
        check(RAMP._replace(height=31), reject_quality="tiny")
