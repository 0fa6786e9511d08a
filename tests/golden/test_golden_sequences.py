"""The same for sequences: the committed birds, with two images each, give the committed digests."""

from __future__ import annotations

import csv
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from recordmill.pipelines.command_line import main

HERE = Path(__file__).parent
ROWS = list(csv.DictReader((HERE / "labels.csv").open(encoding="utf-8", newline="")))
GOLDEN = {
    "birds-train.tfrecord-00000-of-00002": (
        "bb31b1fc1cc28fba34d58ac37695d6a32fd075d86d813cc49f5d668c64d7ba62"
    ),
    "birds-train.tfrecord-00001-of-00002": (
        "84ee69f7b52d2caf9b312e9cdd9b0226250c2f6c3f584ad63c5eb931c509fad2"
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the committed table: one record per bird."""
    output = tmp_path_factory.mktemp("golden")
    target = ("--input", str(HERE / "labels.csv"), "--output", str(output), "--name", "birds")
    schema = ("--schema", str(HERE / "birds.yaml"), "--image_root", str(HERE / "images"))
    assert main(["convert", *target, *schema, "--num_shards", "2", "--no_report"]) == 0
    return output / "birds" / "1.0.0"


def test_every_shard_matches_its_digest(made: Path) -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in made.glob("*.tfrecord-*")
    }
    assert found == GOLDEN


def values(feature: tf.train.Feature) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def test_the_shards_contain_the_table_and_the_images(made: Path) -> None:
    files = sorted(str(path) for path in made.glob("*.tfrecord-*"))
    found = {}
    for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
        sequence = tf.train.SequenceExample.FromString(record)
        lists = sequence.feature_lists.feature_list
        (bird,) = values(sequence.context.feature["bird"])
        assert list(sequence.context.feature) == ["bird"]
        found[bird.decode()] = {
            name: [values(feature) for feature in lists[name].feature] for name in sorted(lists)
        }
    assert found == {bird: expected(bird) for bird in sorted({row["bird"] for row in ROWS})}


def expected(bird: str) -> dict[str, list[list[Any]]]:
    rows = sorted((row for row in ROWS if row["bird"] == bird), key=lambda row: row["image"])
    classes = sorted({row["label"] for row in ROWS})
    float32 = [struct.unpack("<f", struct.pack("<f", float(row["grams"])))[0] for row in rows]
    return {
        "grams": [[number] for number in float32],
        "image": [[(HERE / "images" / row["image"]).read_bytes()] for row in rows],
        "label": [[classes.index(row["label"])] for row in rows],
    }
