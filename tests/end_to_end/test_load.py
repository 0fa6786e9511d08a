"""`load` returns the same records as TFDS and TensorFlow, and reports what it does not support."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from recordmill.pipelines.dataset.dataset import open_dataset
from recordmill.pipelines.dataset.image_tensors import TensorResize
from recordmill.pipelines.dataset.load import _Selection, load
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.records.framing import _masked_crc32c
from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table
from tests.images import jpeg

SPLITS = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=3,test=1")


@pytest.fixture(scope="module")
def dataset(images: list[Photo], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    table = write_table(folder / "load.csv", rows)
    return published(table, tmp_path_factory.mktemp("load"), *SPLITS)


@pytest.fixture(scope="module")
def lists(images: list[Photo], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"image": p.path, "labels": p.labels} for p in images]
    table = write_table(folder / "lists.jsonl", rows)
    return published(table, tmp_path_factory.mktemp("lists"), *SPLITS, "--schema", "multi_label")


def names(data: tf.data.Dataset) -> list[str]:
    return [example["image/filename"].decode() for example in data.as_numpy_iterator()]


def test_examples_are_those_that_tfds_loads(dataset: Path) -> None:
    _, expected = readers.loaded(dataset, "train")
    found = list(load(dataset).as_numpy_iterator())
    assert len(found) == len(expected) > 5
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        assert ours["image"].dtype == np.uint8
        assert np.array_equal(ours["image"], theirs["image"])
        assert (ours["image/filename"], ours["label"]) == (
            theirs["image/filename"],
            theirs["label"],
        )


@pytest.mark.parametrize(
    "split", ["train", "test", "all", "train[:50%]", "train[2:-1]+test[:2]", "train[1shard]"]
)
def test_a_split_is_the_one_of_tfds_in_the_order_of_records(dataset: Path, split: str) -> None:
    expected = [
        e["image/filename"].decode()
        for e in readers.loaded(dataset, split.replace("all", "test+train"))[1]
    ]
    data = load(dataset, split, decode=False)
    assert names(data) == expected
    assert len(data) == len(expected)
    if split == "train":
        assert expected == readers.keys(dataset, "train")


def test_shares_have_every_record_once(dataset: Path) -> None:
    shares = [names(load(dataset, "all", share=(i, 5), decode=False)) for i in range(5)]
    assert [name for share in shares for name in share] == names(load(dataset, "all", decode=False))
    assert {len(share) for share in shares} == {2, 3}


def epochs_of(dataset: Path, seed: int | None, count: int = 3) -> list[list[str]]:
    data = load(dataset, "all", shuffle=True, seed=seed, decode=False)
    return [names(data) for _ in range(count)]


def test_a_seed_reproduces_the_order_of_each_epoch(dataset: Path) -> None:
    once, again, other = epochs_of(dataset, 7), epochs_of(dataset, 7), epochs_of(dataset, 8)
    assert once == again
    assert len({tuple(epoch) for epoch in [*once, *other]}) == 6
    assert {tuple(sorted(epoch)) for epoch in once} == {
        tuple(sorted(names(load(dataset, "all", decode=False))))
    }


def test_a_shuffle_without_a_seed_gives_every_record_once_an_epoch(dataset: Path) -> None:
    expected = sorted(names(load(dataset, "train", decode=False)))
    data = load(dataset, "train", shuffle=True, shuffle_buffer=2, epochs=3, decode=False)
    found = names(data)
    assert len(data) == len(found) == 3 * len(expected)
    assert sorted(found) == sorted(3 * expected)


def test_batches_of_one_size(dataset: Path) -> None:
    whole = list(load(dataset, "train").as_numpy_iterator())
    data = load(dataset, "train", batch_size=4, image_size=(10, 14))
    assert data.element_spec["image"] == tf.TensorSpec((None, 10, 14, 3), tf.uint8)
    batches = list(data.as_numpy_iterator())
    assert [len(batch["label"]) for batch in batches] == [4] * (len(whole) // 4) + (
        [len(whole) % 4] if len(whole) % 4 else []
    )
    images = np.concatenate([batch["image"] for batch in batches])
    for image, example in zip(images, whole, strict=True):
        expected = tf.image.resize(example["image"], (10, 14), antialias=True)
        assert np.array_equal(image, np.rint(expected.numpy()).clip(0, 255).astype(np.uint8))


def test_a_remainder_can_be_dropped(dataset: Path) -> None:
    data = load(dataset, "all", batch_size=5, image_size=8, drop_remainder=True)
    assert data.element_spec["image"].shape == (5, 8, 8, 3)
    assert len(list(data)) == len(data) == 2


def test_pairs_for_keras(dataset: Path) -> None:
    data = load(dataset, "train", batch_size=4, image_size=8, as_supervised=True)
    assert [spec.shape.as_list() for spec in data.element_spec] == [[None, 8, 8, 3], [None]]
    model = tf.keras.Sequential(
        [tf.keras.layers.Rescaling(1 / 255), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss)
    history = model.fit(data, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_chosen_features_alone(dataset: Path) -> None:
    data = open_dataset(dataset).load("train", features=["label"], batch_size=3)
    labels = [label for batch in data.as_numpy_iterator() for label in batch["label"]]
    assert list(data.element_spec) == ["label"]
    assert labels == [e["label"][0] for e in readers.examples(dataset, "train")]


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_channels(dataset: Path, channels: int) -> None:
    raw = load(dataset, "all", decode=False).as_numpy_iterator()
    for example, stored in zip(load(dataset, "all", channels=channels), raw, strict=True):
        expected = tf.io.decode_image(stored["image"], channels, expand_animations=False)
        assert np.array_equal(example["image"], expected)


@pytest.mark.parametrize("decode", [True, False])
def test_lists_of_any_length_are_ragged(lists: Path, decode: bool) -> None:
    size = 8 if decode else None
    data = load(lists, "train", batch_size=4, decode=decode, image_size=size)
    assert data.element_spec["labels"] == tf.RaggedTensorSpec((None, None), tf.int64, 1)
    found = [row for batch in data for row in batch["labels"].to_list()]
    assert found == [e["labels"] for e in readers.examples(lists, "train")]
    if decode:
        assert data.element_spec["image"] == tf.TensorSpec((None, 8, 8, 3), tf.uint8)
    assert [e["labels"].tolist() for e in load(lists, "train").as_numpy_iterator()] == found


@pytest.fixture(scope="module")
def zipped(dataset: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same dataset, compressed."""
    output = tmp_path_factory.mktemp("zipped")
    return published(folder / "load.csv", output, *SPLITS, "--compression", "gzip")


def test_gzip(zipped: Path, dataset: Path) -> None:
    ours, theirs = (list(load(d, "all").as_numpy_iterator()) for d in (zipped, dataset))
    assert json.dumps(ours, default=digest) == json.dumps(theirs, default=digest)


def digest(value: Any) -> str:
    data = value if isinstance(value, bytes) else value.tobytes()
    return hashlib.sha256(data).hexdigest()


RAW = """
features:
  image: {{kind: bytes, from: "image:bytes"}}
  id: {{kind: bytes, from: key}}
{size}
image: {{format: raw{more}}}
"""
SIZED = '  height: {kind: int64, from: "image:height"}\n  width: {kind: int64, from: "image:width"}'


@pytest.mark.parametrize(("size", "more"), [(SIZED, ""), ("", ", resize: 9x6 exact, color: rgb")])
def test_raw_pixels_get_their_shape(
    images: list[Photo], folder: Path, dataset: Path, tmp_path: Path, size: str, more: str
) -> None:
    schema = tmp_path / "raw.yaml"
    schema.write_text(RAW.format(size=size, more=more))
    raw = published(folder / "load.csv", tmp_path, *SPLITS, "--schema", schema)
    by_key = {e["image/filename"]: e["image"] for e in load(dataset, "all").as_numpy_iterator()}
    for example in load(raw, "all").as_numpy_iterator():
        expected = by_key[example["id"]]
        if more:
            assert example["image"].shape == (6, 9, 3)
        elif example["id"].endswith(b"png"):
            assert np.array_equal(example["image"], expected)
        else:  # two decoders of JPEG
            assert np.abs(example["image"].astype(int) - expected).max() <= 3
    if more:
        assert load(raw, "all", batch_size=5).element_spec["image"].shape == (None, 6, 9, 3)


def test_raw_pixels_without_a_size_are_reported(
    folder: Path, dataset: Path, tmp_path: Path
) -> None:
    schema = tmp_path / "raw.yaml"
    schema.write_text(RAW.format(size="", more=""))
    raw = published(folder / "load.csv", tmp_path, "--schema", schema)
    with pytest.raises(UsageError, match="image:height"):
        load(raw)
    assert len(list(load(raw, decode=False))) == 12


def test_images_of_many_sizes_cannot_be_batched(dataset: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image_size=\(height, width\)"):
        list(load(dataset, "train", batch_size=4))


def test_images_of_one_size_are_batched(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(20, 10, number))
    rows = [{"image": f"{number}.jpg", "label": number} for number in range(3)]
    dataset = published(write_table(tmp_path / "same.csv", rows), tmp_path)
    data = load(dataset, batch_size=2)
    assert data.element_spec["image"] == tf.TensorSpec((None, 10, 20, 3), tf.uint8)
    assert [len(batch["image"]) for batch in data] == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tain"}, "unknown split 'tain'; available: test, train"),
        ({"features": ["lable"]}, "did you mean 'label'?"),
        ({"channels": 4}, "channels=4: expected one of"),
        ({"image_size": (3,)}, "image_size=(3,): expected (height, width)"),
        ({"image_size": 0}, "image_size=0"),
        ({"share": (2, 2)}, "share=(2, 2)"),
        ({"as_supervised": True, "features": ["label"]}, "Leave features out"),
    ],
)
def test_invalid_arguments_are_usage_errors(
    dataset: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(dataset, **arguments)
    assert message in str(raised.value)


def test_an_unpublished_dataset_is_rejected(dataset: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    (copied / "_SUCCESS").unlink()
    with pytest.raises(VerificationFailed, match="not a published dataset: it has no _SUCCESS"):
        load(copied)
    (copied / "_SUCCESS").write_text("0" * 64)
    with pytest.raises(VerificationFailed, match="does not match the checksum in _SUCCESS"):
        load(copied)


def test_a_damaged_record_ends_the_reading(dataset: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        list(load(copied, "test"))


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 30])
def test_a_record_that_is_longer_than_its_shard_is_not_given_to_tensorflow(
    dataset: Path, tmp_path: Path, length: int
) -> None:
    copied = shutil.copytree(dataset, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    data = shard.read_bytes()
    header = length.to_bytes(8, "little")
    header += _masked_crc32c(header).to_bytes(4, "little")
    shard.write_bytes(data + header + bytes(99))
    with pytest.raises(VerificationFailed, match=f"states {length:,} bytes, which is more than"):
        load(copied, "test")
    shard.write_bytes(b"\xff" * 7 + data[7:])  # without a valid checksum
    with pytest.raises(tf.errors.DataLossError):
        list(load(copied, "test"))


def test_beam_is_not_loaded_for_local_files(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, but for TensorFlow: no module of ours is loaded, and Beam cannot be."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("recordmill", "apache_beam"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    alone = importlib.import_module("recordmill.pipelines.dataset.load").load
    assert len(list(alone(str(dataset), "all", batch_size=4, image_size=8))) == 3
    assert alone is not load


def test_a_file_system_of_tensorflow(dataset: Path) -> None:
    for root in ("ram://birds", "ram://owls/1.10.0"):
        for path in dataset.rglob("*"):
            if path.is_file():
                target = f"{root}/{path.relative_to(dataset)}"
                tf.io.gfile.makedirs(os.path.dirname(target))
                tf.io.gfile.copy(str(path), target)
    assert names(load("ram://birds/", "all")) == names(load(dataset, "all"))
    for version, name in (("1.9.0", "_SUCCESS"), ("1.11.0", "manifest.json")):
        tf.io.gfile.makedirs(f"ram://owls/{version}")
        with tf.io.gfile.GFile(f"ram://owls/{version}/{name}", "w") as stream:
            stream.write("an older version, and one that is not published")
    assert names(load("ram://owls", "all")) == names(load(dataset, "all"))
    with pytest.raises(VerificationFailed, match="ram://nowhere"):
        load("ram://nowhere")


class OnlyBeam(LocalFileSystem):
    """Local files under a scheme for which TensorFlow has no file system."""

    @classmethod
    def scheme(cls) -> str:
        return "onlybeam"

    def open(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> Any:
        return super().open(path.removeprefix("onlybeam:/"), mime_type, compression_type)

    def exists(self, path: str) -> bool:
        return bool(super().exists(path.removeprefix("onlybeam:/")))


@pytest.mark.parametrize("there", ["dataset", "zipped"])
def test_a_file_system_of_beam(dataset: Path, there: str, request: pytest.FixtureRequest) -> None:
    url = f"onlybeam:/{request.getfixturevalue(there)}"
    assert isinstance(FileSystems.get_filesystem(url), OnlyBeam)
    for split in ("all", "train[2:-1]"):
        assert names(load(url, split)) == names(load(dataset, split))
    with pytest.raises(VerificationFailed):
        load("onlybeam://nowhere")


def test_masks_of_objects_are_not_resized_which_is_a_warning() -> None:
    chosen = _Selection(preset("instance_segmentation"), None, False, 3, "uint8")
    with pytest.warns(UserWarning, match=r"^image_size does not resize image/object/mask\.$"):
        chosen.decoders(TensorResize((4, 6)))


def test_the_label_of_pairs_is_the_first_feature_with_classes() -> None:
    image, label = {"kind": "bytes", "from": "image:bytes"}, {"kind": "int64", "classes": True}
    features = {
        "size": {"kind": "int64", "from": "column:size"},
        "group5": {**label, "from": "column:group"},
        "label": {**label, "from": "column:label"},
        "image": image,
    }
    schema = Schema.model_validate({"name": "s", "features": features})
    assert _Selection(schema, None, True, 3, "uint8").names_in_order == ("image", "group5")
