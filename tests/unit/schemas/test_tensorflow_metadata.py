"""schema.pbtxt, features.json and dataset_info.json, as TensorFlow's own tools read them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.tensorflow_metadata import (
    dataset_info_document,
    features_document,
    schema_text,
)
from recordmill.schemas.yaml_files import preset, preset_names
from recordmill.transforms.functional.records.examples import _encode_example
from tests.images import pixels, png

REQUIRED = "presence { min_fraction: 1.0 min_count: 1 }"


def parsed(text):
    return text_format.Parse(text, schema_pb2.Schema())


def written(features, classes=None):
    return parsed(schema_text(ResolvedSchema(Schema(features=features), classes or {})))


@pytest.mark.parametrize(
    ("options", "classes", "expected"),
    [
        pytest.param({"kind": "int64"}, {}, f"type: INT {REQUIRED} shape {{}}", id="integer"),
        pytest.param({"kind": "float"}, {}, f"type: FLOAT {REQUIRED} shape {{}}", id="float"),
        pytest.param({"kind": "bytes"}, {}, f"type: BYTES {REQUIRED} shape {{}}", id="bytes"),
        pytest.param(
            {"kind": "float", "shape": [4]},
            {},
            f"type: FLOAT {REQUIRED} shape {{ dim {{ size: 4 }} }}",
            id="four floats",
        ),
        pytest.param(
            {"kind": "bytes", "shape": []}, {}, "type: BYTES value_count { min: 0 }", id="list"
        ),
        pytest.param(
            {"kind": "int64", "missing": "empty"},
            {},
            "type: INT value_count { min: 0 }",
            id="one or none",
        ),
        pytest.param(
            {"kind": "int64", "default": 7}, {}, f"type: INT {REQUIRED} shape {{}}", id="default"
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ("cat", "dog", "owl")},
            f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 2 is_categorical: true }}",
            id="classes",
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ("cat",)},
            f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 0 is_categorical: true }}",
            id="one class",
        ),
        pytest.param(
            {"kind": "int64", "classes": True},
            {"f": ()},
            f"type: INT {REQUIRED} shape {{}}",
            id="classes without names",
        ),
        pytest.param(
            {"kind": "bytes", "sources": "image:bytes"},
            {},
            f"type: BYTES {REQUIRED} shape {{}} image_domain {{}}",
            id="image",
        ),
    ],
)
def test_features(options, classes, expected):
    feature = Feature(**{"sources": "column:f", **options})
    assert written({"f": feature}, classes) == parsed(f'feature {{ name: "f" {expected} }}')


def test_features_are_sorted_by_name():
    feature = Feature(kind="int64", sources="column:f")
    names = ["label", "image/ü", "Z", "a"]
    found = written(dict.fromkeys(names, feature))
    assert [f.name for f in found.feature] == sorted(names)


def test_a_complete_preset():
    text = schema_text(ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")}))
    assert parsed(text) == parsed(
        f"""
        feature {{ name: "image" type: BYTES {REQUIRED} shape {{}} image_domain {{}} }}
        feature {{ name: "image/filename" type: BYTES {REQUIRED} shape {{}} }}
        feature {{
          name: "label" type: INT {REQUIRED} shape {{}}
          int_domain {{ min: 0 max: 1 is_categorical: true }}
        }}
        """
    )


PETS = ("cat", "dog")


def text():
    return tfds.features.Text()


def integer():
    return tfds.features.Scalar(tf.int64)


def stored_image():
    return tfds.features.Image(shape=(None, None, 3), dtype=np.uint8)


def label(names):
    return tfds.features.ClassLabel(num_classes=len(names)) if names else integer()


def image_bytes():
    """Returns the features that describe an image in the presets of vision tasks."""
    return {
        "image/encoded": stored_image(),
        "image/format": text(),
        "image/height": integer(),
        "image/width": integer(),
        "image/filename": text(),
        "image/key/sha256": text(),
        "image/source_id": text(),
    }


def mask(names):
    shape = {"shape": (None, None, 1), "dtype": np.uint8, "encoding_format": "png"}
    if not names:
        return tfds.features.Image(**shape)
    return tfds.features.LabeledImage(labels=len(names), **shape)


def listed(feature):
    return tfds.features.Sequence(feature)


def number():
    return tfds.features.Scalar(tf.float32)


def expected_features(name, names):
    """Returns the features of a preset as declared in TFDS."""
    boxes = {
        **image_bytes(),
        **{f"image/object/bbox/{side}": listed(number()) for side in BOX_SIDES},
        "image/object/class/text": listed(text()),
        "image/object/class/label": listed(label(names)),
    }
    crowds = {"image/object/is_crowd": listed(integer()), "image/object/area": listed(number())}
    difficult = {"image/object/difficult": listed(integer())}
    return {
        "object_detection": lambda: {**boxes, **crowds, **difficult},
        "keypoints": lambda: {
            **boxes,
            **crowds,
            "image/object/keypoint/x": listed(number()),
            "image/object/keypoint/y": listed(number()),
            "image/object/keypoint/visibility": listed(integer()),
            "image/object/keypoint/num": listed(integer()),
            "image/object/keypoint/text": listed(text()),
        },
        "instance_segmentation": lambda: {**boxes, **crowds, "image/object/mask": listed(mask(()))},
        "oriented_boxes": lambda: {
            **boxes,
            **difficult,
            "image/object/oriented_bbox": tfds.features.Tensor(shape=(None, 8), dtype=tf.float32),
        },
        "panoptic": lambda: {
            **boxes,
            **crowds,
            "image/panoptic/category_mask": mask(names),
            "image/panoptic/instance_mask": mask(()),
        },
        "segmentation": lambda: {**image_bytes(), "image/segmentation/class/encoded": mask(names)},
        "captioning": lambda: {**image_bytes(), "image/caption": listed(text())},
        "image_classification": lambda: {
            "image": stored_image(),
            "image/filename": text(),
            "label": label(names),
        },
        "tf_tutorial": lambda: {
            "height": integer(),
            "width": integer(),
            "depth": integer(),
            "label": label(names),
            "image_raw": stored_image(),
        },
        "landmark": lambda: {
            "image_raw": stored_image(),
            "landmark_id": label(names),
            "id": text(),
        },
        "tf_slim": lambda: {
            "image/encoded": stored_image(),
            "image/format": text(),
            "image/class/label": label(names),
            "image/class/text": text(),
            "image/height": integer(),
            "image/width": integer(),
            "image/filename": text(),
            "image/key/sha256": text(),
            "image/source_id": text(),
        },
        "multi_label": lambda: {
            "image": stored_image(),
            "labels": tfds.features.Sequence(label(names)),
        },
        "tabular": lambda: {
            "count": integer(),
            "name": text(),
            "score": tfds.features.Scalar(tf.float32),
        },
    }[name]()


COLUMNS = {  # columns that the analyze pass adds to the preset that takes every column
    "count": Feature(kind="int64", sources="column:count"),
    "name": Feature(kind="bytes", sources="column:name"),
    "score": Feature(kind="float", sources="column:score"),
}


def resolved(name, names):
    schema = preset(name)
    if schema.every_column:
        schema = schema.model_copy(update={"features": COLUMNS})
    return ResolvedSchema(schema, dict.fromkeys(schema.named_features, names))


def written_by_tfds(features, folder):
    """Returns features.json as TFDS saves it with a dataset."""
    tfds.features.FeaturesDict(features).save_config(str(folder))
    return json.loads((folder / "features.json").read_text())


@pytest.mark.parametrize("names", [PETS, ()], ids=["names", "integers"])
@pytest.mark.parametrize("name", [name for name in preset_names() if preset(name).sequence is None])
def test_features_of_presets_are_those_that_tfds_writes(name, names, tmp_path):
    document = features_document(resolved(name, names))
    assert document == written_by_tfds(expected_features(name, names), tmp_path)


def listed_of(length, feature):
    return tfds.features.Sequence(feature, length=length)


FEATURES = [
    pytest.param(
        {"kind": "int64", "shape": [3]},
        lambda: tfds.features.Tensor(shape=(3,), dtype=tf.int64),
        id="[3]",
    ),
    pytest.param(
        {"kind": "float", "shape": [1]},
        lambda: tfds.features.Tensor(shape=(1,), dtype=tf.float32),
        id="[1] is no scalar",
    ),
    pytest.param(
        {"kind": "float", "shape": []},
        lambda: tfds.features.Sequence(tfds.features.Scalar(tf.float32)),
        id="any number of floats",
    ),
    pytest.param(
        {"kind": "bytes", "shape": []},
        lambda: tfds.features.Sequence(text()),
        id="any number of texts",
    ),
    pytest.param(
        {"kind": "bytes", "shape": [2]},
        lambda: tfds.features.Sequence(text(), length=2),
        id="two texts",
    ),
    pytest.param(
        {"kind": "int64", "missing": "empty"},
        lambda: tfds.features.Sequence(integer()),
        id="one or none",
    ),
    pytest.param({"kind": "int64", "missing": "empty", "default": 0}, integer, id="a default"),
    pytest.param(
        {"kind": "float", "shape": [2, 3]},
        lambda: tfds.features.Tensor(shape=(2, 3), dtype=tf.float32),
        id="[2, 3]",
    ),
    pytest.param(
        {"kind": "bytes", "shape": [2, 3]},
        lambda: tfds.features.Tensor(shape=(2, 3), dtype=tf.string),
        id="2 x 3 texts",
    ),
    pytest.param(
        {"kind": "int64", "shape": [None, 4]},
        lambda: tfds.features.Tensor(shape=(None, 4), dtype=tf.int64),
        id="any number of fours",
    ),
    pytest.param(
        {"kind": "int64", "classes": True, "shape": [2, 3]},
        lambda: listed_of(2, listed_of(3, label(PETS))),
        id="2 x 3 classes",
    ),
    pytest.param(
        {"kind": "int64", "classes": True, "shape": [2]},
        lambda: tfds.features.Sequence(label(PETS), length=2),
        id="two classes",
    ),
]


@pytest.mark.parametrize(("options", "feature"), FEATURES)
def test_features_of_every_shape_are_those_that_tfds_writes(options, feature, tmp_path):
    schema = Schema(features={"f": Feature(**{"sources": "column:f", **options})})
    classes = dict.fromkeys(schema.class_features, PETS)
    document = features_document(ResolvedSchema(schema, classes))
    assert document == written_by_tfds({"f": feature()}, tmp_path)


def test_boxes_in_the_order_of_tfds_are_its_own_and_lists_of_lists_are_ragged(tmp_path):
    features = {
        "image": {"kind": "bytes", "from": "image:bytes"},
        "objects/bbox": {"kind": "float", "from": "box:yxyx", "shape": [None, 4]},
        "words/ragged_flat_values": {"kind": "bytes", "from": "flat:words", "shape": []},
        "words/ragged_row_lengths_0": {"kind": "int64", "from": "row_lengths:words", "shape": []},
    }
    resolved_schema = ResolvedSchema(Schema.model_validate({"features": features}))
    declared = {
        "image": stored_image(),
        "objects/bbox": listed(tfds.features.BBoxFeature()),
        "words": listed(listed(text())),
    }
    assert features_document(resolved_schema) == written_by_tfds(declared, tmp_path)
    record = {
        "image": IMAGE,
        "objects/bbox": [0.0, 0.25, 0.5, 1.0, 0.25, 0.0, 1.0, 0.5],
        "words/ragged_flat_values": [b"a", b"b", b"c"],
        "words/ragged_row_lengths_0": [2, 0, 1],
    }
    builder = publish(tmp_path, resolved_schema, [record], {"train": 1})
    (found,) = builder.as_dataset(split="train")
    assert found["objects/bbox"].numpy().tolist() == [[0.0, 0.25, 0.5, 1.0], [0.25, 0.0, 1.0, 0.5]]
    assert found["words"].to_list() == [[b"a", b"b"], [], [b"c"]]


def test_masks_of_16_bits(tmp_path):
    document = preset("segmentation").model_dump(by_alias=True)
    schema = Schema.model_validate({**document, "masks": {"bit_depth": 16}})
    deep = tfds.features.Image(shape=(None, None, 1), dtype=np.uint16, encoding_format="png")
    declared = {**image_bytes(), "image/segmentation/class/encoded": deep}
    assert features_document(ResolvedSchema(schema)) == written_by_tfds(declared, tmp_path)


IMAGE, MASK = png(12, 8, 3), png(12, 8, 4, "L")
ABOUT_THE_IMAGE = {
    "image/encoded": IMAGE,
    "image/format": b"png",
    "image/height": 8,
    "image/width": 12,
    "image/filename": b"a.png",
    "image/key/sha256": b"ab" * 32,
    "image/source_id": b"a.png",
}
VALUES = {
    "object_detection": {
        **ABOUT_THE_IMAGE,
        "image/object/bbox/xmin": [0.25, 0.0],
        "image/object/bbox/xmax": [0.5, 1.0],
        "image/object/bbox/ymin": [0.0, 0.5],
        "image/object/bbox/ymax": [0.125, 0.75],
        "image/object/class/text": [b"dog", b"cat"],
        "image/object/class/label": [1, 0],
        "image/object/is_crowd": [0, 1],
        "image/object/area": [12.5, 3.0],
        "image/object/difficult": [],
    },
    "segmentation": {**ABOUT_THE_IMAGE, "image/segmentation/class/encoded": MASK},
    "captioning": {**ABOUT_THE_IMAGE, "image/caption": [b"a", "ü|b".encode()]},
    "image_classification": {"image": IMAGE, "image/filename": "ü/a,b.png".encode(), "label": 1},
    "tf_tutorial": {"height": 8, "width": 12, "depth": 3, "label": 0, "image_raw": IMAGE},
    "landmark": {"image_raw": IMAGE, "landmark_id": 1, "id": b"f00"},
    "tf_slim": {
        "image/encoded": IMAGE,
        "image/format": b"png",
        "image/class/label": 1,
        "image/class/text": b"dog",
        "image/height": 8,
        "image/width": 12,
        "image/filename": b"a.png",
        "image/key/sha256": b"ab" * 32,
        "image/source_id": b"a.png",
    },
    "multi_label": {"image": IMAGE, "labels": [1, 0, 1]},
    "tabular": {"count": -(2**63), "name": b"", "score": 0.5},
}


def config_of(**metadata):
    named = {"inputs": ["t.csv"], "output": "out", "name": "birds", "version": "1.2.3"}
    return ConvertConfig(**named, **metadata)


def publish(folder, resolved_schema, records, splits, **metadata):
    """Writes a dataset's folder with the layout of the pipeline, and its shards with TensorFlow."""
    data = [_encode_example(resolved_schema.schema.features, record) for record in records]
    for split, count in splits.items():
        for shard in range(count):
            name = layout.shard_name("birds", split, shard, count)
            with tf.io.TFRecordWriter(str(folder / name)) as writer:
                for record in data[shard::count]:
                    writer.write(record)
    lengths = {
        split: [(len(data[i::count]), sum(map(len, data[i::count]))) for i in range(count)]
        for split, count in splits.items()
    }
    config = config_of(**metadata)
    info = dataset_info_document(config, resolved_schema.schema, lengths)
    (folder / layout.FEATURES).write_text(json.dumps(features_document(resolved_schema)))
    (folder / layout.DATASET_INFO).write_text(json.dumps(info))
    for feature, names in resolved_schema.classes.items():
        (folder / layout.labels_name(feature)).write_text("".join(f"{n}\n" for n in names))
    return tfds.builder_from_directory(str(folder))


@pytest.mark.parametrize("name", VALUES)
def test_tfds_loads_every_preset(name, tmp_path):
    resolved_schema = resolved(name, PETS)
    builder = publish(tmp_path, resolved_schema, [VALUES[name]], {"train": 1})
    (found,) = builder.as_dataset(split="train").as_numpy_iterator()
    expected = {
        IMAGE: pixels(12, 8, 3),
        MASK: pixels(12, 8, 4, 1),
    }
    expected = {
        key: expected.get(value, value) if isinstance(value, bytes) else value
        for key, value in VALUES[name].items()
    }
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)
    for feature in resolved_schema.schema.named_features:
        declared = builder.info.features[feature]
        declared = declared.feature if isinstance(declared, tfds.features.Sequence) else declared
        assert declared.names == list(PETS)


def test_tfds_reads_every_feature_of_the_steps(tmp_path):
    features = {
        "steps/image": {"kind": "bytes", "from": "image:bytes", "per": "frame"},
        "steps/image/height": {"kind": "int64", "from": "image:height", "per": "frame"},
        "steps/image/key/id": {"kind": "bytes", "from": "column:id", "per": "frame"},
        "steps/action/arm": {"kind": "float", "from": "column:arm", "per": "frame"},
        "steps/is_first": {"kind": "int64", "from": "frame:first", "per": "frame"},
        "steps/is_last": {"kind": "float", "from": "column:is_last", "per": "frame"},
        "steps/is_terminal": {"kind": "bytes", "from": "column:terminal", "per": "frame"},
    }
    label = {"kind": "int64", "from": "column:label", "per": "frame", "classes": True}
    features["steps/group/is_first"] = label
    sequence = {"group": "episode", "order": "step", "record": "example"}
    schema = Schema.model_validate({"features": features, "sequence": sequence})
    resolved_schema = ResolvedSchema(schema, {"steps/group/is_first": PETS})
    record = {
        "steps/image": [IMAGE, IMAGE],
        "steps/image/height": [8, 9],
        "steps/image/key/id": [b"a", b"b"],
        "steps/action/arm": [0.5, 1.5],
        "steps/is_first": [1, 0],
        "steps/is_last": [0.0, 1.0],
        "steps/is_terminal": [b"no", b"yes"],
        "steps/group/is_first": [1, 0],
    }
    builder = publish(tmp_path, resolved_schema, [record], {"train": 1})
    (episode,) = builder.as_dataset(split="train")
    first, last = episode["steps"].as_numpy_iterator()
    assert (first.pop("image").shape, last.pop("image").shape) == ((8, 12, 3),) * 2
    assert first == {
        "image/height": 8,
        "image/key/id": b"a",
        "action": {"arm": 0.5},
        "is_first": True,
        "is_last": 0.0,
        "is_terminal": b"no",
        "group": {"is_first": 1},
    }
    assert last["image/height"] == 9
    assert [last[flag].dtype for flag in ("is_first", "is_last")] == [np.bool_, np.float32]


def test_tfds_reads_splits_shards_and_sizes(tmp_path):
    resolved_schema = resolved("tabular", ())
    records = [{"count": i, "name": b"x" * i, "score": 0.0} for i in range(5)]
    splits = {"train": 2, "test": 1}
    builder = publish(tmp_path, resolved_schema, records, splits, description="Some birds.")
    info = builder.info
    size = sum(len(_encode_example(resolved_schema.schema.features, record)) for record in records)
    assert (info.name, str(info.version), info.description) == ("birds", "1.2.3", "Some birds.")
    assert {split: s.shard_lengths for split, s in info.splits.items()} == {
        "train": [3, 2],
        "test": [5],
    }
    assert {split: s.num_bytes for split, s in info.splits.items()} == {"train": size, "test": size}
    found = builder.as_dataset(split="train[60%:]").as_numpy_iterator()
    assert [example["count"] for example in found] == [1, 3]


def test_the_document_is_the_one_that_tfds_would_write():
    lengths = {"train": [(3, 100), (0, 0)]}
    document = dataset_info_document(config_of(), preset("tabular"), lengths)
    assert document == {
        "name": "birds",
        "version": "1.2.3",
        "description": preset("tabular").description,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": "train",
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "shardLengths": ["3", "0"],
                "numBytes": "100",
            }
        ],
    }


CITATION = "@misc{birds,\n  title = {Birds},\n}"


def test_the_metadata_is_what_tfds_shows(tmp_path):
    schema = resolved("image_classification", PETS)
    metadata = {
        "description": "Some birds.",
        "citation": CITATION,
        "license": "CC-BY-4.0",
        "homepage": "https://example.com/birds",
        "creator": "Ada",  # of which TFDS knows nothing
    }
    builder = publish(tmp_path, schema, [VALUES["image_classification"]], {"train": 1}, **metadata)
    info = builder.info
    shown = (info.description, info.citation, info.redistribution_info.license, info.homepage)
    assert shown == ("Some birds.", CITATION, "CC-BY-4.0", "https://example.com/birds")


SUPERVISED = {
    "image_classification": ("image", "label"),
    "landmark": ("image_raw", "landmark_id"),
    "multi_label": ("image", "labels"),
    "object_detection": ("image/encoded", "image/object/class/label"),
    "segmentation": ("image/encoded", "image/segmentation/class/encoded"),
    "tf_slim": ("image/encoded", "image/class/label"),
    "tf_tutorial": ("image_raw", "label"),
}


@pytest.mark.parametrize("name", VALUES)
def test_tfds_returns_pairs_of_image_and_label(name, tmp_path):
    builder = publish(tmp_path, resolved(name, PETS), [VALUES[name]], {"train": 1})
    assert builder.info.supervised_keys == SUPERVISED.get(name)
    if name not in SUPERVISED:
        return
    (found,) = builder.as_dataset(split="train", as_supervised=True).as_numpy_iterator()
    (whole,) = builder.as_dataset(split="train").as_numpy_iterator()
    for value, key in zip(found, SUPERVISED[name], strict=True):
        np.testing.assert_array_equal(value, whole[key])
