"""The presets: the Example keys that training code reads, and the messages for broken schemas."""

from __future__ import annotations

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.yaml_files import parse_schema, preset, preset_names

INFER = "recordmill schema --infer TABLE prints one for a table."

# Example key: kind, sources, shape, classes. From the design, not from the files.
SINGLE = None
IMAGE = {
    "image/encoded": ("bytes", "image:bytes", SINGLE, False),
    "image/format": ("bytes", "image:format", SINGLE, False),
    "image/height": ("int64", "image:height", SINGLE, False),
    "image/width": ("int64", "image:width", SINGLE, False),
    "image/filename": ("bytes", "column:image", SINGLE, False),
    "image/key/sha256": ("bytes", "image:sha256", SINGLE, False),
    "image/source_id": ("bytes", "column:id key", SINGLE, False),
}
BOXES = {
    **IMAGE,
    **{f"image/object/bbox/{s}": ("float", f"box:{s}", (), False) for s in BOX_SIDES},
    "image/object/class/text": ("bytes", "class_name:labels", (), False),
    "image/object/class/label": ("int64", "column:labels", (), True),
}
CROWDS = {
    "image/object/is_crowd": ("int64", "column:is_crowd", (), False),
    "image/object/area": ("float", "area:area", (), False),
}
DIFFICULT = {"image/object/difficult": ("int64", "column:difficult", (), False)}
POINT = "image/object/keypoint"
EXPECTED = {
    "object_detection": {**BOXES, **CROWDS, **DIFFICULT},
    "keypoints": {
        **BOXES,
        **CROWDS,
        f"{POINT}/x": ("float", "keypoint_x:keypoints", (), False),
        f"{POINT}/y": ("float", "keypoint_y:keypoints", (), False),
        f"{POINT}/visibility": ("int64", "keypoint_visibility:keypoints", (), False),
        f"{POINT}/num": ("int64", "keypoint_count:keypoints", (), False),
        f"{POINT}/text": ("bytes", "keypoint_name:keypoint_names", (), False),
    },
    "instance_segmentation": {
        **BOXES,
        **CROWDS,
        "image/object/mask": ("bytes", "instance_png:segmentation", (), False),
    },
    "oriented_boxes": {
        **BOXES,
        **DIFFICULT,
        "image/object/oriented_bbox": ("float", "corners:corners", (None, 8), False),
    },
    "panoptic": {
        **BOXES,
        **CROWDS,
        "image/panoptic/category_mask": ("bytes", "segmentation:segmentation", SINGLE, True),
        "image/panoptic/instance_mask": ("bytes", "instance_ids:segmentation", SINGLE, False),
    },
    "segmentation": {
        **IMAGE,
        "image/segmentation/class/encoded": (
            "bytes",
            "mask:mask segmentation:segmentation",
            SINGLE,
            True,
        ),
    },
    "captioning": {**IMAGE, "image/caption": ("bytes", "column:caption", (), False)},
    "image_classification": {
        "image": ("bytes", "image:bytes", SINGLE, False),
        "image/filename": ("bytes", "column:image", SINGLE, False),
        "label": ("int64", "column:label", SINGLE, True),
    },
    "tf_tutorial": {
        "height": ("int64", "image:height", SINGLE, False),
        "width": ("int64", "image:width", SINGLE, False),
        "depth": ("int64", "image:channels", SINGLE, False),
        "label": ("int64", "column:label", SINGLE, True),
        "image_raw": ("bytes", "image:bytes", SINGLE, False),
    },
    "landmark": {
        "image_raw": ("bytes", "image:bytes", SINGLE, False),
        "landmark_id": ("int64", "column:landmark_id column:label", SINGLE, True),
        "id": ("bytes", "column:id key", SINGLE, False),
    },
    "tf_slim": {
        "image/encoded": ("bytes", "image:bytes", SINGLE, False),
        "image/format": ("bytes", "image:format", SINGLE, False),
        "image/class/label": ("int64", "column:label", SINGLE, True),
        "image/class/text": ("bytes", "class_name:label", SINGLE, False),
        "image/height": ("int64", "image:height", SINGLE, False),
        "image/width": ("int64", "image:width", SINGLE, False),
        "image/filename": ("bytes", "column:image", SINGLE, False),
        "image/key/sha256": ("bytes", "image:sha256", SINGLE, False),
        "image/source_id": ("bytes", "column:id key", SINGLE, False),
    },
    "multi_label": {
        "image": ("bytes", "image:bytes", SINGLE, False),
        "labels": ("int64", "column:labels", (), True),
    },
    "tabular": {},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_presets(name):
    schema = preset(name)
    found = {
        key: (f.kind.value, " ".join(map(str, f.sources)), f.shape, f.classes)
        for key, f in schema.features.items()
    }
    assert found == EXPECTED[name]
    assert (schema.name, schema.every_column) == (name, name == "tabular")
    assert schema.description.endswith(".")


def test_the_presets_are_listed_sorted():
    assert preset_names() == sorted(preset_names())
    assert set(EXPECTED) <= set(preset_names())


def test_every_preset_can_be_read():
    for name in preset_names():
        assert preset(name).name == name


def test_an_unknown_preset_is_rejected():
    with pytest.raises(UsageError) as raised:
        preset("clasification")
    listed = ", ".join(preset_names())
    assert str(raised.value) == (
        "--schema clasification: no such preset or file "
        f"(did you mean 'image_classification'?); expected a YAML file or one of: {listed}"
    )


@pytest.mark.parametrize("name", ["../features", "image_classification.yaml", "", "__init__"])
def test_presets_cannot_be_named_by_paths(name):
    with pytest.raises(UsageError):
        preset(name)


def test_a_schema_file():
    text = """
    name: mine
    features:
      score: {kind: float, from: [column:score, column:points], missing: empty}
      tags: {kind: bytes, from: column:tags, shape: [], separator: ";"}
      x: {kind: bytes, from: "image:bytes"}
    image: {column: path, max_pixels: 1000}
    """
    assert parse_schema(text, "mine.yaml") == Schema.model_validate(
        {
            "name": "mine",
            "features": {
                "score": {
                    "kind": "float",
                    "from": ["column:score", "column:points"],
                    "missing": "empty",
                },
                "tags": {"kind": "bytes", "from": "column:tags", "shape": [], "separator": ";"},
                "x": {"kind": "bytes", "from": "image:bytes"},
            },
            "image": {"column": "path", "max_pixels": 1000},
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "features: {a: {kind: int64, from: column:a}}\nname: [x",
            "s.yaml:2:9: not a YAML file: expected ',' or ']', but got '<stream end>'",
            id="no YAML",
        ),
        pytest.param(
            "- a",
            f"s.yaml: expected a mapping with the key 'features', got ['a']. {INFER}",
            id="list",
        ),
        pytest.param(
            "", f"s.yaml: expected a mapping with the key 'features', got None. {INFER}", id="empty"
        ),
        pytest.param(
            "name: x", "s.yaml:1:1: at the schema: a schema needs features", id="no features"
        ),
        pytest.param(
            "features: {a: {kind: int32, from: column:a}}",
            "s.yaml:1:22: at features > a > kind: expected 'int64', 'float' or 'bytes', got "
            "'int32' (did you mean 'int64'?)",
            id="kind",
        ),
        pytest.param(
            "features: {a: {kind: int64, from: label}}",
            "s.yaml:1:35: at features > a > from: 'label' is not a source; expected column:NAME, "
            "class_name:COLUMN, image:ATTRIBUTE, image:NAME/ATTRIBUTE, key, box:SIDE, area:COLUMN, "
            "mask:COLUMN, segmentation:COLUMN, instance_png:COLUMN, instance_rle:COLUMN, "
            "instance_ids:COLUMN, corners:COLUMN, keypoint_x:COLUMN, keypoint_y:COLUMN, "
            "keypoint_visibility:COLUMN, keypoint_count:COLUMN, keypoint_name:COLUMN, "
            "flat:COLUMN, row_lengths:COLUMN or frame:POSITION, "
            "got 'label'",
            id="source",
        ),
        pytest.param(
            "features: {a: {kind: int64, from: column:a, shap: []}}",
            "s.yaml:1:45: at features > a > shap: unknown key 'shap' (did you mean 'shape'?); "
            "available: kind, from, shape, ",
            id="a typo",
        ),
        pytest.param(
            "features: {a: {kind: int64}}",
            "s.yaml:1:15: at features > a > from: the key 'from' is missing",
            id="no source",
        ),
        pytest.param(
            "features: {1: {kind: int64, from: column:a}}",
            "s.yaml:1:12: at features > 1",
            id="key 1",
        ),
        pytest.param(
            "features:\n  a:\n    kind: bytes\n    from: [column:a, colunm:b]\n",
            "s.yaml:4:11: at features > a > from: 'colunm:b' is not a source "
            "(did you mean 'column'?)",
            id="a misspelt source on a later line",
        ),
        pytest.param(
            "features: {a: {kind: int64, from: 'image:hight'}}",
            "s.yaml:1:35: at features > a > from: 'hight' is not an image attribute "
            "(did you mean 'height'?)",
            id="a misspelt fact",
        ),
        pytest.param(
            "features: {a: {kind: bytes, from: key}}\nimage:\n  max_sides: 10",
            "s.yaml:3:3: at image > max_sides: unknown key 'max_sides' (did you mean 'max_side'?)",
            id="a misspelt setting of the image",
        ),
        pytest.param(
            "imagee: {}\nfeatures: {a: {kind: bites, from: key}}",
            "s.yaml:1:1: at imagee: unknown key 'imagee' (did you mean 'image'?)",
            id="of two problems the first",
        ),
        pytest.param(
            "features:\n  a: {kind: bytes, from: key}\n  b: {kind: bytes, from: key}\n"
            "  a: {kind: int64, from: column:x}",
            "s.yaml:4:3: the key 'a' occurs twice",
            id="a repeated key",
        ),
        pytest.param(
            "features:\n\ta: {kind: bytes, from: key}",
            "s.yaml:2:1: not a YAML file: found character '\\t' that cannot start any token",
            id="a tab",
        ),
    ],
)
def test_a_broken_schema_is_reported_in_one_message_with_its_location(text, expected):
    with pytest.raises(UsageError) as raised:
        parse_schema(text, "s.yaml")
    assert str(raised.value).startswith(expected)


def test_yaml_that_would_run_code_is_rejected():
    with pytest.raises(UsageError, match="not a YAML file"):
        parse_schema("features: !!python/object/apply:os.system ['true']", "s.yaml")
