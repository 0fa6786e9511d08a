"""Every preset with every table format.

TensorFlow, TensorFlow Datasets and pyarrow read the same values from the records as the test wrote
to the table and the images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
import tensorflow as tf
from huggingface_hub import DatasetCard, metadata_load

import recordmill as recordmill_api
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

CLASSES = ["cat", "horse", "Übermut"]
"""Sorted by code point, as ids count them."""

ONE_INT = tf.io.FixedLenFeature([], tf.int64)
ONE_BYTES = tf.io.FixedLenFeature([], tf.string)
ONE_FLOAT = tf.io.FixedLenFeature([], tf.float32)
SPLIT_FLAGS = ("--splits", "train=0.6,test=0.4", "--num_shards", "train=2,test=1")


@dataclass(frozen=True)
class Case:
    """A preset with a table and the expected records."""

    row: Callable[[Photo], dict[str, Any]]
    spec: dict[str, Any]
    expected: Callable[[Photo], dict[str, Any]]
    flags: tuple[str, ...] = ()
    image: str | None = None
    label: str | None = None


def _image_row(p: Photo) -> dict[str, Any]:
    return {"image": p.path, "label": p.label}


CASES = {
    "image_classification": Case(
        row=_image_row,
        spec={"image": ONE_BYTES, "image/filename": ONE_BYTES, "label": ONE_INT},
        expected=lambda p: {
            "image": p.data,
            "image/filename": p.path.encode(),
            "label": CLASSES.index(p.label),
        },
        image="image",
        label="label",
    ),
    "tf_tutorial": Case(
        row=_image_row,
        spec={
            "height": ONE_INT,
            "width": ONE_INT,
            "depth": ONE_INT,
            "label": ONE_INT,
            "image_raw": ONE_BYTES,
        },
        expected=lambda p: {
            "height": p.height,
            "width": p.width,
            "depth": p.channels,
            "label": CLASSES.index(p.label),
            "image_raw": p.data,
        },
        image="image_raw",
        label="label",
    ),
    "tf_slim": Case(
        row=lambda p: {"file": p.path, "class": p.label, "id": p.id},
        spec={
            "image/encoded": ONE_BYTES,
            "image/format": ONE_BYTES,
            "image/class/label": ONE_INT,
            "image/class/text": ONE_BYTES,
            "image/height": ONE_INT,
            "image/width": ONE_INT,
            "image/filename": ONE_BYTES,
            "image/key/sha256": ONE_BYTES,
            "image/source_id": ONE_BYTES,
        },
        expected=lambda p: {
            "image/encoded": p.data,
            "image/format": p.format.encode(),
            "image/class/label": CLASSES.index(p.label),
            "image/class/text": p.label.encode(),
            "image/height": p.height,
            "image/width": p.width,
            "image/filename": p.path.encode(),
            "image/key/sha256": p.sha256.encode(),
            "image/source_id": p.id.encode(),
        },
        flags=("--columns", "image=file,label=class"),
        image="image/encoded",
        label="image/class/label",
    ),
    "landmark": Case(
        row=lambda p: {"image": p.path, "landmark_id": p.landmark},
        spec={"image_raw": ONE_BYTES, "landmark_id": ONE_INT, "id": ONE_BYTES},
        expected=lambda p: {
            "image_raw": p.data,
            "landmark_id": p.landmark,
            "id": p.path.encode(),
        },
        image="image_raw",
    ),
    "multi_label": Case(
        row=lambda p: {"image": p.path, "labels": p.labels},
        spec={"image": ONE_BYTES, "labels": tf.io.RaggedFeature(tf.int64)},
        expected=lambda p: {
            "image": p.data,
            "labels": [CLASSES.index(name) for name in p.labels],
        },
        image="image",
        label="labels",
    ),
    "tabular": Case(
        row=lambda p: {
            "image": p.path,
            "upright": p.height > p.width,
            "pixels": p.height * p.width,
            "ratio": p.height / p.width,
            "code": p.id,
        },
        spec={
            "image": ONE_BYTES,
            "upright": ONE_INT,
            "pixels": ONE_INT,
            "ratio": ONE_FLOAT,
            "code": ONE_BYTES,
        },
        expected=lambda p: {
            "image": p.path.encode(),
            "upright": int(p.height > p.width),
            "pixels": p.height * p.width,
            "ratio": float(tf.constant(p.height / p.width, tf.float32).numpy()),
            "code": p.id.encode(),
        },
        flags=("--key_column", "image"),
    ),
}


@dataclass(frozen=True)
class Made:
    """A dataset of a preset."""

    preset: str
    case: Case
    directory: Path
    by_key: dict[str, Photo]

    def in_order(self, split: str) -> list[Photo]:
        """Returns the images of a split in the order of records/."""
        return [self.by_key[key] for key in readers.keys(self.directory, split)]


@pytest.fixture(scope="module", params=CASES)
def made(
    request: pytest.FixtureRequest,
    folder: Path,
    images: list[Photo],
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """A dataset converted from a CSV table with a preset."""
    directory = _published(request.param, "csv", folder, images, tmp_path_factory.mktemp("out"))
    by_key = {image.path: image for image in images}
    return Made(request.param, CASES[request.param], directory, by_key)


def _published(preset: str, suffix: str, folder: Path, images: list[Photo], output: Path) -> Path:
    case = CASES[preset]
    table = write_table(folder / f"{preset}.{suffix}", [case.row(p) for p in images])
    return published(table, output, "--schema", preset, *SPLIT_FLAGS, *case.flags)


def test_every_row_is_a_record_of_one_split(made: Made) -> None:
    splits = readers.splits(made.directory)
    assert set(splits) == {"train", "test"}
    assert splits["train"] | splits["test"] == set(made.by_key)
    assert not splits["train"] & splits["test"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_tensorflow_parses_exactly_the_values_of_the_table(made: Made, split: str) -> None:
    expected = [made.case.expected(image) for image in made.in_order(split)]
    parsed = readers.parsed(made.directory, split, made.case.spec)
    assert parsed == {name: [values[name] for values in expected] for name in made.case.spec}


@pytest.mark.parametrize("split", ["train", "test"])
def test_records_hold_no_feature_but_those_of_the_preset(made: Made, split: str) -> None:
    for example in readers.examples(made.directory, split):
        assert set(example) == set(made.case.spec)


@pytest.mark.parametrize("split", ["train", "test"])
def test_records_have_the_location_and_content_of_each_record(made: Made, split: str) -> None:
    files = readers.shards(made.directory, split)
    expected = []
    for shard, file in enumerate(files):
        frames = readers.frames(file.read_bytes())
        expected += [(split, shard, i, f.start + 12, f.data) for i, f in enumerate(frames)]
    found = [
        (
            row["split"],
            row["shard"],
            row["index"],
            row["offset"],
            files[row["shard"]].read_bytes()[row["offset"] : row["offset"] + row["length"]],
        )
        for row in readers.index_rows(made.directory, split)
    ]
    assert found == expected


@pytest.mark.parametrize("split", ["train", "test"])
def test_records_have_the_digest_and_class_of_each_image(made: Made, split: str) -> None:
    expected_entry = {
        "landmark": lambda p: (p.sha256, str(p.landmark)),
        "multi_label": lambda p: (p.sha256, p.labels),
        "tabular": lambda p: (None, None),
    }.get(made.preset, lambda p: (p.sha256, p.label))
    rows = readers.index_rows(made.directory, split)
    assert [(row["sha256"], row["class"]) for row in rows] == [
        expected_entry(image) for image in made.in_order(split)
    ]


@pytest.mark.parametrize("split", ["train", "test"])
def test_tensorflow_datasets_loads_the_same_values(made: Made, split: str) -> None:
    _, found = readers.loaded(made.directory, split)
    images = made.in_order(split)
    assert len(found) == len(images)
    for example, image in zip(found, images, strict=True):
        values = {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in example.items()
        }
        expected = made.case.expected(image)
        if made.case.image:
            pixels = tf.io.decode_image(image.data, channels=3).numpy()
            expected[made.case.image] = pixels.tolist()
        assert values == expected


def test_tensorflow_datasets_knows_the_class_names(made: Made) -> None:
    builder, _ = readers.loaded(made.directory, "train")
    assert set(builder.info.features) == set(made.case.spec)
    if made.case.label is None:
        return
    feature = builder.info.features[made.case.label]
    names = feature.feature.names if made.preset == "multi_label" else feature.names
    assert names == CLASSES
    file = made.directory / f"{made.case.label.replace('/', '.')}.labels.txt"
    assert file.read_text(encoding="utf-8") == "".join(f"{name}\n" for name in CLASSES)


def test_the_dataset_knows_the_size_of_every_image(made: Made) -> None:
    dataset = recordmill_api.open(made.directory)
    if made.case.image is None:
        with pytest.raises(recordmill_api.UsageError, match="schema 'tabular' has no images"):
            dataset.sizes()
        return
    expected = [[photo.width, photo.height] for photo in made.in_order("train")]
    assert dataset.sizes().tolist() == expected
    assert dataset.sizes("train[:2]").tolist() == expected[:2]


def test_mlcroissant_loads_every_record_set(made: Made) -> None:
    """It fetches each file that croissant.json names, and compares digests."""
    croissant = mlcroissant.Dataset(made.directory / "croissant.json")
    found = {
        each.uuid: list(croissant.records(each.uuid)) for each in croissant.metadata.record_sets
    }
    splits = {split: len(readers.keys(made.directory, split)) for split in ("test", "train")}
    assert {row["splits/name"]: row["splits/records"] for row in found["splits"]} == splits
    keys = {row["records/key"].decode() for row in found["records"]}
    assert keys == set(made.by_key)
    if made.case.label:
        name = f"classes-{made.case.label}"
        rows = [(row[f"{name}/id"], row[f"{name}/name"].decode()) for row in found[name]]
        assert rows == list(enumerate(CLASSES))


def test_the_hub_reads_the_dataset_card(made: Made) -> None:
    front_matter = metadata_load(made.directory / "README.md")
    assert front_matter is not None
    assert DatasetCard.load(made.directory / "README.md").data.to_dict() == front_matter
    assert (front_matter["tags"], front_matter["size_categories"]) == (
        ["tfrecord", "croissant"],
        ["n<1K"],
    )


def test_tensorflow_datasets_counts_what_tf_data_reads(made: Made) -> None:
    builder, _ = readers.loaded(made.directory, "train")
    for split in ("train", "test"):
        shards = readers.shards(made.directory, split)
        frames = [readers.frames(shard.read_bytes()) for shard in shards]
        info = builder.info.splits[split]
        assert info.shard_lengths == [len(found) for found in frames]
        assert info.num_bytes == sum(len(f.data) for found in frames for f in found)


SUFFIXES = ("tsv", "jsonl.gz", "parquet")


@pytest.mark.parametrize("made", ["multi_label"], indirect=True)
def test_all_other_table_formats_together_give_the_same_bytes(
    made: Made, folder: Path, images: list[Photo], tmp_path: Path
) -> None:
    """Each format has a third of the rows, so any difference changes the bytes."""
    rows = [made.case.row(image) for image in images]
    inputs = []
    for number, suffix in enumerate(SUFFIXES):
        table = folder / f"{made.preset}.part{number}.{suffix}"
        inputs += ["--input", write_table(table, rows[number :: len(SUFFIXES)])]
    target = ("--output", tmp_path, "--name", "birds", "--schema", made.preset)
    ended = recordmill("convert", *inputs, *target, *SPLIT_FLAGS, *made.case.flags)
    assert ended.code == 0, ended.err
    assert_same(tmp_path / "birds" / "1.0.0", made.directory)


@pytest.mark.parametrize("made", ["tabular"], indirect=True)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_table_format_alone_gives_the_same_kinds_and_bytes(
    made: Made, suffix: str, folder: Path, images: list[Photo], tmp_path: Path
) -> None:
    assert_same(_published("tabular", suffix, folder, images, tmp_path), made.directory)


def assert_same(other: Path, dataset: Path) -> None:
    """Asserts that two datasets are the same except for their input tables."""
    found, expected = readers.content(other), readers.content(dataset)
    assert found.pop("manifest.json") != expected.pop("manifest.json")  # it names the table
    assert found.pop("_SUCCESS") != expected.pop("_SUCCESS")  # it has the manifest's checksum
    assert found == expected
