"""Datasets and foreign TFRecords as input: classes, keys, boxes, columns and splits come along."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.images import jpeg, pixels

NAMES = [*"abcdefgh"]


def folder(root: Path, name: str, classes: list[str], empty: list[str], seed: int) -> Path:
    """Draws 1 to 3 images per class; returns the folder."""
    draw = random.Random(seed)
    for one in [*classes, *empty]:
        (root / name / one).mkdir(parents=True)
    for i, one in enumerate(draw.choices(classes, k=3) + classes):
        (root / name / one / f"{i}.jpg").write_bytes(jpeg(16, 12, 1000 * seed + i))
    return root / name


def labels_of(dataset: Path) -> dict[bytes, str]:
    """Returns the class name of each image, by a plain reader."""
    names = (dataset / "label.labels.txt").read_text().splitlines()
    splits = json.loads((dataset / "manifest.json").read_bytes())["splits"]
    found = [e for split in splits for e in readers.examples(dataset, split)]
    return {e["image"][0]: names[e["label"][0]] for e in found}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[bytes, str]]]:
    """Datasets with random lists of classes, some of which have no image, with their labels."""
    root, found = tmp_path_factory.mktemp("pool"), []
    for seed in range(4):
        draw = random.Random(seed)
        names = draw.sample(NAMES, draw.randint(2, 5))
        images = folder(root, f"in{seed}", names[1:], names[:1], seed)
        expected = {p.read_bytes(): p.parent.name for p in images.rglob("*.jpg")}
        compression = ("--compression", "gzip") if seed % 2 else ()
        splits = "train=0.5,test=0.5" if seed % 3 else "train=1"
        flags = ("--splits", splits, *compression)
        dataset = published(images, root / "sets", *flags, name=f"s{seed}")
        assert labels_of(dataset) == expected
        found.append((dataset, expected))
    return found


@settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=4, unique=True),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_a_merge_keeps_the_name_of_every_label(
    pool: list[tuple[Path, dict[bytes, str]]],
    tmp_path_factory: pytest.TempPathFactory,
    chosen: list[int],
    as_pattern: list[bool],
) -> None:
    datasets = [pool[i] for i in chosen]
    inputs = [
        f"{path}/*.tfrecord*" if pattern else path
        for (path, _), pattern in zip(datasets, as_pattern, strict=False)
    ]
    others = [part for one in inputs[1:] for part in ("--input", one)]
    merged = published(inputs[0], tmp_path_factory.mktemp("out"), *others)
    assert labels_of(merged) == {k: v for _, labels in datasets for k, v in labels.items()}
    # The ids of the first dataset stay, and new names follow in the order of the others.
    lists = [(path / "label.labels.txt").read_text().splitlines() for path, _ in datasets]
    expected = list(dict.fromkeys(name for names in lists for name in names))
    assert (merged / "label.labels.txt").read_text().splitlines() == expected
    found = {split: len(readers.records(merged, split)) for split in readers.splits(merged)}
    sizes = Counter[str]()
    for path, _ in datasets:
        sizes.update({split: len(readers.records(path, split)) for split in readers.splits(path)})
    assert found == dict(sizes)


def test_new_shards_have_the_same_records(pool: Any, tmp_path: Path) -> None:
    (dataset, _), out = pool[2], tmp_path / "out"
    again = published(dataset.parent, out, "--num_shards", "2")
    assert recordmill("diff", dataset, again).code == 0
    for name in ("label.labels.txt", "features.json"):
        assert (again / name).read_bytes() == (dataset / name).read_bytes()
    assert readers.splits(again) == readers.splits(dataset)  # with the keys in each


def test_a_changed_id_is_reported_with_its_dataset(tmp_path: Path) -> None:
    for name, classes in (("p", "abc"), ("q", "abe")):
        published(folder(tmp_path, f"in_{name}", [*classes], [], ord(name)), tmp_path, name=name)
    ended = convert(tmp_path / "p", tmp_path / "out", "--input", tmp_path / "q")
    assert f"note: {tmp_path}/q/1.0.0: class ids are remapped by name: e 2 → 3" in ended.out
    assert "the keys of several datasets begin with p/, q/" in ended.out
    keys = [key for found in readers.splits(tmp_path / "out/birds/1.0.0").values() for key in found]
    assert {key[:2] for key in keys} == {"p/", "q/"}


def test_names_that_classes_lack_are_rejected(tmp_path: Path) -> None:
    dataset = published(folder(tmp_path, "in", ["a", "b"], [], 5), tmp_path, name="p")
    (tmp_path / "names.txt").write_text("b\nc\n")
    ended = convert(dataset, tmp_path / "out", "--classes", tmp_path / "names.txt")
    assert ended.code == 4
    assert "unknown_label" in ended.err
    assert "'a'" in ended.err


def test_boxes_areas_and_custom_features_come_back(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(jpeg(40, 30, 1))
    schema = {
        "name": "custom",
        "features": {
            "pixels": {"kind": "bytes", "from": "image:bytes"},
            "high": {"kind": "int64", "from": "image:height"},
            "wide": {"kind": "int64", "from": "image:width"},
            "file": {"kind": "bytes", "from": "column:image"},
            "boxes": {"kind": "float", "from": "box:yxyx", "shape": [None, 4]},
            "class": {
                "kind": "int64",
                "from": "column:labels",
                "shape": [],
                "classes": True,
                "per_box": True,
            },
            "size": {"kind": "float", "from": "area:area", "shape": [], "per_box": True},
            "grid": {"kind": "int64", "from": "column:table", "shape": [None, 3]},
            "kg": {"kind": "float", "from": "column:weight"},
        },
    }
    (tmp_path / "s.yaml").write_text(json.dumps(schema))
    row = {
        "image": "1.jpg", "bbox": [[4, 3, 20, 15], [0, 0, 13, 7]], "labels": ["x", "y"],
        "area": [100.0, 33.3], "table": [[1, 2, 3], [4, 5, 6]], "weight": 0.1, "id": "K1",
    }  # fmt: skip
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    flags = ("--schema", tmp_path / "s.yaml", "--key_column", "id")
    first = published(tmp_path / "t.jsonl", tmp_path / "a", *flags)
    again = published(first, tmp_path / "b")
    assert readers.records(again, "train") == readers.records(first, "train")
    assert readers.keys(again, "train") == ["K1"]


def example(**features: Any) -> bytes:
    kinds = {int: ("int64_list", tf.train.Int64List), float: ("float_list", tf.train.FloatList)}
    made = {}
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kind, of = kinds.get(type(values[0]), ("bytes_list", tf.train.BytesList))
        values = [v.encode() if isinstance(v, str) else v for v in values]
        made[name.replace("__", "/")] = tf.train.Feature(**{kind: of(value=values)})
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write(path: Path, *examples: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for data in examples:
            writer.write(data)
    return path


def detection(seed: int, ids: list[int], texts: list[str] | None = None) -> bytes:
    """Returns an example of the Object Detection API."""
    sides = {f"image__object__bbox__{s}": [v] * len(ids) for s, v in zip(
        ("xmin", "ymin", "xmax", "ymax"), (0.125, 0.25, 0.5, 0.75), strict=True)}  # fmt: skip
    names = {"image__object__class__text": texts} if texts else {}
    return example(
        image__encoded=jpeg(16, 12, seed), image__filename=f"{seed}.jpg", **sides, **names,
        image__object__class__label=ids,
    )  # fmt: skip


def objects(dataset: Path) -> list[tuple[list[str], list[float]]]:
    names = (dataset / "image.object.class.label.labels.txt").read_text().splitlines()
    return [
        ([names[i] for i in e["image/object/class/label"]], e["image/object/bbox/xmin"])
        for e in readers.examples(dataset, "train")
    ]


def test_texts_of_the_object_detection_api_name_its_ids(tmp_path: Path) -> None:
    one = write(
        tmp_path / "in/a.record", detection(1, [2], ["dog"]), detection(2, [1, 2], ["cat", "dog"])
    )
    ended = convert(one, tmp_path / "out")
    assert "schema: object_detection, because of the input" in ended.out
    assert "(cat 1 → 0, dog 2 → 1)" in ended.out
    found = objects(tmp_path / "out/birds/1.0.0")
    assert sorted(found) == [(["cat", "dog"], [0.125, 0.125]), (["dog"], [0.125])]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("label_map.pbtxt", "item {\n id: 1\n name: 'cat'\n}\nitem { name: \"dog\" id: 2 }\n"),
        ("labels.txt", "1:cat\n2:dog\n"),
    ],
)
def test_label_maps_beside_the_records_name_ids(tmp_path: Path, name: str, content: str) -> None:
    one = write(tmp_path / "in/a.record", detection(1, [2]), detection(2, [1, 2]))
    (tmp_path / "in" / name).write_text(content)
    assert sorted(names for names, _ in objects(published(one, tmp_path / "out"))) == [
        ["cat", "dog"],
        ["dog"],
    ]


def test_a_contradiction_of_text_and_id_is_rejected(tmp_path: Path) -> None:
    one = write(tmp_path / "a.record", detection(1, [1], ["cat"]), detection(2, [1], ["dog"]))
    ended = convert(one, tmp_path / "out")
    assert ended.code == 4
    assert "1 is 'dog' in 'image/object/class/label'" in ended.err
    assert "'cat' in a record before" in ended.err


@pytest.mark.parametrize("texts", [None, [""]])
def test_an_id_without_text_is_no_class_beside_named_ones(
    tmp_path: Path, texts: list[str] | None
) -> None:
    one = write(tmp_path / "in/a.record", detection(1, [1], ["cat"]), detection(2, [1], texts))
    ended = convert(one, tmp_path / "out")
    assert ended.code == 4
    text = "1 in 'image/object/class/label' has no name in 'image/object/class/text', unlike"
    assert text in ended.err
    (tmp_path / "in/label_map.pbtxt").write_text("item {\n id: 1\n name: 'cat'\n}\n")
    assert objects(published(one, tmp_path / "out")) == [(["cat"], [0.125])] * 2


def test_ids_without_names_do_not_become_other_classes(tmp_path: Path) -> None:
    named = write(tmp_path / "a/x.record", detection(1, [1], ["cat"]))
    unnamed = write(tmp_path / "b/x.record", detection(2, [2]))
    ended = convert(named, tmp_path / "out", "--input", unnamed)
    assert ended.code == 2
    assert "'image/object/class/label'" in ended.err
    assert "have no names" in ended.err
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    ended = convert(unnamed, tmp_path / "out", "--classes", tmp_path / "names.txt")
    assert ended.code == 2
    assert "count from 1 by the convention" in ended.err
    label_map = tmp_path / "names.pbtxt"
    label_map.write_text("item { id: 1 name: 'cat' } item { id: 2 name: 'dog' }")
    known = published(unnamed, tmp_path / "out", "--classes", label_map, name="known")
    assert objects(known) == [(["dog"], [0.125])]
    only = published(unnamed, tmp_path / "out")
    assert [e["image/object/class/label"] for e in readers.examples(only, "train")] == [[2]]
    run = json.loads((only / "run.json").read_bytes())
    assert "unnamed_classes" in [finding["kind"] for finding in run["findings"]]


@pytest.mark.parametrize(("first_label", "offset"), [("1", "0"), ("0", "1"), ("1", "1")])
def test_integers_without_names_keep_their_ids(
    tmp_path: Path, first_label: str, offset: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jpg").write_bytes(jpeg(8, 8, seed=ord(name)))
    (tmp_path / "t.csv").write_text("image,label\na.jpg,1\nb.jpg,2\n")
    flags = ("--first_label", first_label, "--label_offset", offset)
    one = published(tmp_path / "t.csv", tmp_path / "out", *flags)
    again = published(one, tmp_path / "out", name="again")
    for dataset in (one, again):
        ids = sorted(example["label"] for example in readers.examples(dataset, "train"))
        shift = int(offset) - int(first_label)
        assert ids == [[1 + shift], [2 + shift]]


def test_what_differs_between_schemas_is_named(tmp_path: Path) -> None:
    one = folder(tmp_path, "one", ["cat"], [], 1)
    other = published(one, tmp_path / "out", "--label_offset", "1", name="other")
    ended = convert(published(one, tmp_path / "out"), tmp_path / "out", "--input", other)
    assert ended.code == 2
    assert "different schemas (image_classification), which differ in label" in ended.err


def test_equal_names_of_files_and_images_have_keys_of_their_own(tmp_path: Path) -> None:
    for part in "ab":
        write(
            tmp_path / part / "x.tfrecord",
            example(image=jpeg(9, 9, ord(part)), label=1, image__filename="1.jpg"),
        )
    dataset = published(
        tmp_path / "a/x.tfrecord", tmp_path / "out", "--input", tmp_path / "b/x.tfrecord"
    )
    assert sorted(readers.keys(dataset, "train")) == ["a/x.tfrecord:1", "b/x.tfrecord:1"]
    assert [e["image/filename"] for e in readers.examples(dataset, "train")] == [[b"1.jpg"]] * 2


def test_tf_slim_keys_need_no_options(tmp_path: Path) -> None:
    rows = [
        example(image__encoded=jpeg(9, 9, i), image__class__label=i, image__class__text=name)
        for i, name in ((1, "tulip"), (2, "daisy"))
    ]
    dataset = published(write(tmp_path / "x-00000-of-00001", *rows), tmp_path / "out")
    names = (dataset / "image.class.label.labels.txt").read_text().splitlines()
    found = {
        (names[e["image/class/label"][0]], e["image/class/text"][0].decode())
        for e in readers.examples(dataset, "train")
    }
    assert found == {("tulip", "tulip"), ("daisy", "daisy")}


def test_folders_of_tfds_bring_names_boxes_and_splits(tmp_path: Path) -> None:
    kind = "tensorflow_datasets.core.features."
    features = {"featuresDict": {"features": {
        "image": {"pythonClassName": kind + "image_feature.Image"},
        "objects": {"pythonClassName": kind + "sequence_feature.Sequence", "sequence": {"feature": {
            "featuresDict": {"features": {
                "bbox": {"pythonClassName": kind + "bounding_boxes.BBoxFeature"},
                "label": {"pythonClassName": kind + "class_label_feature.ClassLabel"},
            }}}}},
    }}}  # fmt: skip
    top = tmp_path / "voc/1.0.0"
    for split, seed in (("train", 1), ("test", 2)):
        data = example(
            image=jpeg(9, 9, seed), objects__bbox=[0.25, 0.125, 0.75, 0.5], objects__label=1
        )
        write(top / f"voc-{split}.tfrecord-00000-of-00001", data)
    (top / "features.json").write_text(json.dumps(features))
    (top / "objects-label.labels.txt").write_text("cat\ndog\n")
    (top.parent / "0.9.0").mkdir()
    dataset = published(top.parent, tmp_path / "out")  # the newest version
    assert {*readers.splits(dataset)} == {"train", "test"}
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    assert manifest["source"]["recognized"][0].endswith("read as dataset voc 1.0.0 of TFDS")
    assert objects(dataset) == [(["dog"], [0.125])]
    (found,) = readers.examples(dataset, "test")
    assert [found[f"image/object/bbox/{s}"] for s in ("ymin", "xmax", "ymax")] == [
        [0.25],
        [0.5],
        [0.75],
    ]


def test_raw_pixels_are_named(tmp_path: Path) -> None:
    raw = pixels(8, 6, 1).tobytes()
    one = write(
        tmp_path / "x.tfrecord", example(image_raw=raw, height=6, width=8, depth=3, label=1)
    )
    ended = convert(one, tmp_path / "out")
    assert ended.code == 2
    assert "image_raw has 6 x 8 x 3 bytes, which are raw uint8 pixels" in ended.err


def test_a_schema_with_boxes_has_the_units_of_the_records(tmp_path: Path) -> None:
    schema = {
        "name": "own",
        "features": {
            "image": {"kind": "bytes", "from": "image:bytes"},
            "x": {"kind": "float", "from": "box:xmin", "shape": []},
        },
        "boxes": {"columns": [f"image/object/bbox/{s}" for s in ("xmin", "ymin", "xmax", "ymax")]},
    }
    (tmp_path / "s.yaml").write_text(json.dumps(schema))
    one = write(tmp_path / "x.record", detection(1, [1]))
    dataset = published(one, tmp_path / "out", "--schema", tmp_path / "s.yaml")
    assert [e["x"] for e in readers.examples(dataset, "train")] == [[0.125]]


def test_infer_proposes_the_preset_of_the_records(tmp_path: Path) -> None:
    one = write(tmp_path / "x.record", detection(1, [1], ["cat"]), detection(2, [2], ["dog"]))
    ended = recordmill("schema", "--infer", one)
    assert f"recordmill convert --schema object_detection --input {one}" in ended.out
    assert "image: {column: image/encoded}" in ended.out
    assert "# 2 jpeg, 16x12" in ended.out


def test_names_of_scripts_state_splits(tmp_path: Path) -> None:
    for i, name in enumerate(("train.record", "pets_val.record-00000-of-00001", "test_0-of-1")):
        write(tmp_path / "in" / name, example(image=jpeg(9, 9, i), label=i))
    dataset = published(tmp_path / "in/*", tmp_path / "out")
    assert {*readers.splits(dataset)} == {"train", "val", "test"}
    write(tmp_path / "in/more.record", example(image=jpeg(9, 9, 9), label=1))
    ended = convert(tmp_path / "in/*", tmp_path / "out", name="more")
    assert ended.code == 2
    assert "other inputs state train, val, test" in ended.err


def test_unlabeled_records_stay_unlabeled(tmp_path: Path) -> None:
    schema = {
        "features": {
            "image": {"kind": "bytes", "from": "image:bytes"},
            "label": {"kind": "int64", "from": "column:label", "classes": True, "default": -1},
        }
    }
    (tmp_path / "s.yaml").write_text(json.dumps(schema))
    for i in (1, 2):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(9, 9, i))
    (tmp_path / "t.csv").write_text("image,label\n1.jpg,cat\n2.jpg,\n")
    first = published(tmp_path / "t.csv", tmp_path / "a", "--schema", tmp_path / "s.yaml")
    again = published(first, tmp_path / "b")
    assert readers.records(again, "train") == readers.records(first, "train")
    assert sorted(e["label"] for e in readers.examples(again, "train")) == [[-1], [0]]


def test_datasets_that_are_not_published_are_not_read(tmp_path: Path) -> None:
    dataset = published(folder(tmp_path, "in", ["a", "b"], [], 3), tmp_path / "out")
    (dataset / "_SUCCESS").unlink()
    for source in (dataset, dataset.parent, dataset / "*.tfrecord*"):
        ended = convert(source, tmp_path / "out", name="again")
        assert (ended.code, f"{dataset}: is not published" in ended.err) == (2, True), ended.err


def test_an_image_folder_may_have_a_manifest(tmp_path: Path) -> None:
    source = folder(tmp_path, "in", ["a", "b"], [], 3)
    (source / "manifest.json").write_text("{}")
    assert {*labels_of(published(source, tmp_path / "out")).values()} == {"a", "b"}
