"""1,000 drawn images with boxes and masks, of every orientation and setting: each box within a
millionth of an independent computation, each mask the same to the pixel."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.features import Schema
from recordmill.schemas.records import ImageRef
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images.masks import mask_from_file
from recordmill.transforms.functional.images.transcode import transcode
from recordmill.transforms.functional.records.examples import Masks, build_example
from tests.annotations import Case, expected_box, expected_mask, placement
from tests.images import jpeg, png

IMAGES = 300
MASK = "image/segmentation/class/encoded"
SIDES = ("xmin", "ymin", "xmax", "ymax")


def drawn_case(seed):
    """Returns the size, orientation and settings of an image by its number."""
    chance = random.Random(seed)
    side = chance.randint
    settings = chance.choice(
        [
            {},
            {"max_side": side(4, 40)},
            *(
                {"resize": f"{side(2, 40)}x{side(2, 40)} {m}"}
                for m in ("fit", "pad", "crop", "exact")
            ),
        ]
    )
    turning = chance.choice(["apply", "apply", "record", "ignore"])
    return Case(
        width=side(2, 30),
        height=side(2, 30),
        orientation=seed % 8 + 1,
        image={**settings, "orientation": turning},
        frame=chance.choice(["displayed", "stored"]),
    )


def schema_of(case):
    """Returns a schema with boxes, a mask and the image settings of a case."""
    detection, segmentation = preset("object_detection"), preset("segmentation")
    return Schema.model_validate(
        {
            "features": {**detection.features, MASK: segmentation.features[MASK]},
            "image": case.image,
            "boxes": {"frame": case.frame},
            "masks": {"frame": case.frame, "padding": 9},
        }
    )


def drawn_boxes(case, seed):
    """Returns boxes on the annotated image, including boxes at its edges."""
    random = np.random.default_rng(seed)
    width, height = case.annotated
    boxes = [(0.0, 0.0, float(width), float(height))]
    for _ in range(seed % 4):
        xs, ys = sorted(random.uniform(0, width, 2)), sorted(random.uniform(0, height, 2))
        boxes.append((xs[0], ys[0], xs[1], ys[1]))
    return boxes


def built(case, seed, boxes, units="pixel", ids=None):
    """Returns the features of the example of an image."""
    encode = jpeg if seed % 2 else png
    data = encode(case.width, case.height, seed, exif_orientation=case.orientation)
    schema = schema_of(case)
    stored = transcode(data, schema.image)
    mask = io.BytesIO()
    Image.fromarray(ids.astype(np.uint8)).save(mask, "PNG")
    numbers = list(range(len(boxes)))
    values = tuple(
        [float(n) for n in numbers]
        if feature.source.origin.value == "area"
        else numbers
        if feature.per_box and feature.kind.value == "int64"
        else [b"%d" % n for n in numbers]
        if feature.per_box
        else None
        for feature in schema.features.values()
    )
    corners = [float(side) for box in boxes for side in box]
    ref = ImageRef("k", "t", 1, "u", None, None, values, boxes=(units, corners))
    masks = Masks(*mask_from_file(mask.getvalue(), stored, schema)[:1])
    made = build_example(schema, ref, stored, masks)
    return Example.FromString(made.data).features.feature, stored


@pytest.mark.parametrize("third", range(3))
def test_boxes_and_masks_follow_their_image(third):
    for seed in range(third * IMAGES // 3, (third + 1) * IMAGES // 3):
        case = drawn_case(seed)
        boxes = drawn_boxes(case, seed)
        ids = np.random.default_rng(seed).integers(0, 256, case.annotated[::-1])
        features, stored = built(case, seed, boxes, ids=ids)
        size, (across, down), _ = placement(case)
        assert (stored.width, stored.height) == size

        expected = [(i, expected_box(box, case)) for i, box in enumerate(boxes)]
        kept = [(i, box) for i, box in expected if box is not None]
        found = [features[f"image/object/bbox/{side}"].float_list.value for side in SIDES]
        assert np.array(found).T.tolist() == pytest.approx(
            np.array([box for _, box in kept]).reshape(-1, 4), abs=1e-6
        ), (seed, case)
        assert list(features["image/object/class/label"].int64_list.value) == [i for i, _ in kept]
        assert list(features["image/object/area"].float_list.value) == pytest.approx(
            [i * float(across * down) for i, _ in kept], rel=1e-6
        )

        mask = Image.open(io.BytesIO(features[MASK].bytes_list.value[0]))
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), expected_mask(ids, case, 9), str(case))


@pytest.mark.parametrize("seed", range(16))
def test_fractions_of_the_annotated_image_give_the_same_as_pixels(seed):
    case = drawn_case(seed)
    width, height = case.annotated
    boxes = drawn_boxes(case, 3)
    ids = np.zeros((height, width))
    parts = [(b[0] / width, b[1] / height, b[2] / width, b[3] / height) for b in boxes]
    pixels, _ = built(case, seed, boxes, ids=ids)
    fractions, _ = built(case, seed, parts, "normalized", ids)
    for side in SIDES:
        name = f"image/object/bbox/{side}"
        assert list(fractions[name].float_list.value) == pytest.approx(
            list(pixels[name].float_list.value), abs=1e-6
        )
    areas = list(fractions["image/object/area"].float_list.value)
    in_pixels = [area * width * height for area in pixels["image/object/area"].float_list.value]
    assert areas == pytest.approx(in_pixels, rel=1e-6)
