"""Folders of other tools, converted with their path and nothing else: the same ids, splits and
boxes as the tools themselves report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from pycocotools.coco import COCO

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.images import jpeg

LABEL = "image/object/class/label"
SIDES = ("xmin", "ymin", "xmax", "ymax")
WIDTH, HEIGHT = 40, 20


def put(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg(WIDTH, HEIGHT, seed))


def manifest(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_text())


def objects(dataset: Path, split: str) -> dict[str, list[tuple[str, list[float]]]]:
    """Returns the classes of each image by name, and their boxes in pixels."""
    names = manifest(dataset)["classes"][LABEL]
    found = {}
    for example in readers.examples(dataset, split):
        boxes = np.array([example[f"image/object/bbox/{side}"] for side in SIDES]).T
        boxes = boxes * [WIDTH, HEIGHT, WIDTH, HEIGHT]
        labels = [names[id_] for id_ in example[LABEL]]
        pairs = zip(labels, boxes.round(3).tolist(), strict=True)
        found[example["image/filename"][0].decode()] = list(pairs)
    return found


def test_an_image_folder_is_what_tfds_reads(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    for i, (split, name) in enumerate([("train", "owl"), ("train", "cat"), ("val", "cat")] * 2):
        put(root / split / name / f"{i}.jpg", i)
    put(root / "val" / "ant" / "9.jpg", 9)
    theirs = tfds.folder_dataset.ImageFolder(str(root))
    dataset = published(root, tmp_path / "out")
    assert manifest(dataset)["classes"]["label"] == theirs.info.features["label"].names
    assert set(manifest(dataset)["splits"]) == set(theirs.info.splits) == {"train", "val"}
    for split in theirs.info.splits:
        expected = {
            Path(e["image/filename"].decode()).name: int(e["label"])
            for e in tfds.as_numpy(theirs.as_dataset(split, shuffle_files=False))
        }
        assert expected == {
            Path(e["image/filename"][0].decode()).name: e["label"][0]
            for e in readers.examples(dataset, split)
        }
    merged = published(root, tmp_path / "out", "--split_column", "none", name="merged")
    assert list(manifest(merged)["splits"]) == ["train"]
    assert "source" in manifest(merged)
    flags = ("--split_column", "none", "--columns", "label=split")
    by_split = published(root, tmp_path / "out", *flags, name="by_split")
    assert manifest(by_split)["classes"]["label"] == ["train", "val"]


def test_metadata_of_an_image_folder_is_read_as_its_table(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    for i in range(4):
        split = ("train", "val")[i % 2]
        put(root / split / "images" / f"{i}.jpg", i)
        with (root / split / "metadata.csv").open("a") as table:
            header = "age,file_name,label\n" if i < 2 else ""
            table.write(f"{header}{i},images/{i}.jpg,{('owl', 'cat')[i // 2]}\n")
    ended = convert(root, tmp_path / "out")
    assert ended.code == 0, ended.err
    assert (
        f"{root}: read as Hugging Face ImageFolder (train/metadata.csv, val/metadata.csv)\n"
        "splits: train, val, as in the input; --splits sets others\n"
    ) in ended.out
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    assert manifest(dataset)["classes"]["label"] == ["cat", "owl"]
    for split, expected in (("train", {"0": 1, "2": 0}), ("val", {"1": 1, "3": 0})):
        found = readers.examples(dataset, split)
        names = [example["image/filename"][0].decode() for example in found]
        assert {Path(n).stem: e["label"][0] for n, e in zip(names, found, strict=True)} == expected


def test_a_table_beside_one_folder_of_images_is_not_ignored(tmp_path: Path) -> None:
    root = tmp_path / "leaves"
    put(root / "train" / "7.jpg", 7)
    (root / "train.csv").write_text("id,species\n7,oak\n")
    ended = convert(root, tmp_path / "out")
    options = f"--input {root}/train.csv --image_root {root}/train --columns image=id,label=species"
    assert (ended.code, ended.out, ended.err) == (
        2,
        "",
        f"recordmill: --input {root}: expected a folder per class, got images in train/ beside "
        f"train.csv. To read a table, use {options}. To make folders the classes, add "
        "--input_format folder.\n",
    )
    _, table, *flags = options.split()
    dataset = published(table, tmp_path / "out", *flags)
    assert manifest(dataset)["classes"]["label"] == ["oak"]
    as_classes = published(root, tmp_path / "out", "--input_format", "folder", name="classes")
    assert manifest(as_classes)["classes"]["label"] == ["train"]
    put(root / "val" / "oak" / "8.jpg", 8)
    (root / "train" / "oak").mkdir()
    (root / "train" / "7.jpg").rename(root / "train" / "oak" / "7.jpg")
    ended = convert(root, tmp_path / "out", "--dry_run", name="splits")
    assert "read as class folders within split folders; not read: train.csv\n" in ended.out


def write_coco(root: Path, years: dict[str, range]) -> None:
    categories = [{"id": id_, "name": name} for id_, name in ((90, "ant"), (1, "owl"), (7, "cat"))]
    for name, numbers in years.items():
        images = [
            {"id": i, "file_name": f"{i}.jpg", "width": WIDTH, "height": HEIGHT} for i in numbers
        ]
        annotations = [
            {"id": 2 * i + n, "image_id": i, "category_id": category, "iscrowd": 0}
            | {"bbox": [i, n, 5 + n, 7], "area": 7 * (5 + n)}
            for i in numbers
            for n, category in enumerate((1, 90)[: 1 + i % 2])
        ]
        for i in numbers:
            put(root / name / f"{i}.jpg", i)
        document = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"instances_{name}.json").write_text(json.dumps(document))


def test_a_coco_folder_is_what_pycocotools_reads(tmp_path: Path) -> None:
    root = tmp_path / "coco"
    write_coco(root, {"train2017": range(5), "val2017": range(5, 7)})
    dataset = published(root, tmp_path / "out")
    found = manifest(dataset)
    assert found["classes"][LABEL] == ["owl", "cat", "ant"]
    for split in ("train", "val"):
        theirs = COCO(str(root / "annotations" / f"instances_{split}2017.json"))
        ids = found["source"]["class_ids"][LABEL]
        assert ids == {category["name"]: category["id"] for category in theirs.cats.values()}
        expected = {}
        for image in theirs.loadImgs(theirs.getImgIds()):
            notes = theirs.loadAnns(theirs.getAnnIds([image["id"]]))
            expected[image["file_name"]] = [
                (theirs.cats[note["category_id"]]["name"], [x, y, x + width, y + height])
                for note in notes
                for x, y, width, height in [note["bbox"]]
            ]
        assert objects(dataset, split) == expected


def test_coco_files_that_are_converted_apart_have_the_same_ids(tmp_path: Path) -> None:
    root = tmp_path / "coco"
    write_coco(root, {"train2017": range(3), "val2017": range(4, 5)})
    for split in ("train", "val"):
        file = root / "annotations" / f"instances_{split}2017.json"
        ended = convert(file, tmp_path / "out", name=split)
        assert ended.code == 0, ended.err
        dataset = tmp_path / "out" / split / "1.0.0"
        assert manifest(dataset)["classes"][LABEL] == ["owl", "cat", "ant"]
        assert list(manifest(dataset)["splits"]) == [split]
        assert f"read as COCO, with images in {root}/{split}2017\n" in ended.out
        assert (
            "note: 3 class ids of 'image/object/class/label' differ from the source "
            "(owl 1 → 0, cat 7 → 1, ant 90 → 2)" in ended.out
        )


@pytest.mark.parametrize("given", ["", "data.yaml"])
def test_yolo_is_what_its_yaml_says(given: str, tmp_path: Path) -> None:
    root = tmp_path / "yolo"
    for i, split in enumerate(("train", "train", "valid")):
        put(root / split / "images" / f"{i}.jpg", i)
        (root / split / "labels").mkdir(exist_ok=True)
        (root / split / "labels" / f"{i}.txt").write_text("0 .5 .5 .25 .5\n1 .25 .5 .5 1\n")
    text = "train: ../train/images\nval: ../valid/images\nnc: 3\nnames: [owl, cat, ant]\n"
    (root / "data.yaml").write_text(text)
    dataset = published(root / given, tmp_path / "out")
    assert manifest(dataset)["classes"][LABEL] == ["owl", "cat", "ant"]
    boxes = [("owl", [15.0, 5.0, 25.0, 15.0]), ("cat", [0.0, 0.0, 20.0, 20.0])]
    assert objects(dataset, "train") == {f"train/images/{i}.jpg": boxes for i in (0, 1)}
    assert objects(dataset, "val") == {"valid/images/2.jpg": boxes}


def test_splits_of_the_source_can_be_replaced(tmp_path: Path) -> None:
    for i in range(4):
        put(tmp_path / "pets" / ("train", "val")[i % 2] / "owl" / f"{i}.jpg", i)
    flags = ("--num_shards", "train=2,val=1", "--dry_run")
    assert convert(tmp_path / "pets", tmp_path, *flags).code == 0
    flags = ("--splits", "a=1", "--num_shards", "a=2", "--dry_run")
    ended = convert(tmp_path / "pets", tmp_path, *flags)
    assert "splits: those of --splits; the input has train, val\n" in ended.out
    ended = convert(
        tmp_path / "pets", tmp_path, "--num_shards", "train=2,test=1", "--splits", "a=1"
    )
    assert (ended.code, "unknown split 'test'" in ended.err) == (2, True)


def test_metadata_without_labels_beside_class_folders_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.jpg").write_bytes(jpeg(16, 12))
    metadata = tmp_path / "metadata.csv"
    metadata.write_text("file_name,caption\ncat/1.jpg,a cat\n")
    reported = (
        f"feature 'label': {metadata} has no column 'label'; it has: file_name, caption. "
        "Name it with --columns label=COLUMN."
    )
    hint = " To read the folders as classes instead, add --input_format folder."
    assert convert(tmp_path, tmp_path / "out").err == f"recordmill: {reported}{hint}\n"
    assert convert(metadata, tmp_path / "out").err == f"recordmill: {reported}\n"
    dataset = published(tmp_path, tmp_path / "out", "--input_format", "folder")
    assert readers.keys(dataset, "train") == ["cat/1.jpg"]
