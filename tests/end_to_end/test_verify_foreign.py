"""Files of TensorFlow, TensorFlow Datasets and Beam are verified without a false alarm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.io.filesystem import CompressionTypes

import recordmill
from tests.end_to_end.command import recordmill as command

# In a process of its own: it registers datasets, and imports the package in the lines below.
WRITE = """
import sys
import numpy as np
import tensorflow_datasets as tfds

class Birds(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict({
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["owl", "wren"]),
            "boxes": tfds.features.Sequence(tfds.features.BBoxFeature()),
            "steps": tfds.features.Dataset({"reward": np.float32, "text": tfds.features.Text()}),
        }))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(37), "test": self._generate_examples(5)}

    def _generate_examples(self, number):
        for n in range(number):
            yield n, {
                "image": np.full((5, 4, 3), n, np.uint8),
                "label": n % 2,
                "boxes": [tfds.features.BBox(0.0, 0.1, 0.5, 0.6)] * (n % 3),
                "steps": [{"reward": 0.5, "text": "go"}] * (n % 4),
            }

Birds.pkg_dir_path = __import__("pathlib").Path(sys.argv[1])
config = tfds.download.DownloadConfig(num_shards=3)
Birds(data_dir=sys.argv[1]).download_and_prepare(download_config=config)
"""


def example(number: int) -> bytes:
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x" * number])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "empty": tf.train.Feature(),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_files_of_tensorflow_are_verified(compression: str, tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        with tf.io.TFRecordWriter(str(tmp_path / name), compression) as writer:
            for number in range(20):
                writer.write(example(number))
    found = recordmill.verify(tmp_path)
    assert (found.records, found.warnings) == (40, [])
    assert found.features == {"empty": "", "image": "bytes", "label": "int64"}


@pytest.mark.parametrize("compression", [CompressionTypes.UNCOMPRESSED, CompressionTypes.GZIP])
def test_files_of_beam_are_verified(compression: str, tmp_path: Path) -> None:
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | beam.Create(map(example, range(20)))
            | beam.io.WriteToTFRecord(
                str(tmp_path / "out" / "train"), num_shards=3, compression_type=compression
            )
        )
    assert recordmill.verify(tmp_path).records == 20


def test_a_dataset_of_tfds_is_verified_also_by_the_command(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow_datasets")
    subprocess.run([sys.executable, "-c", WRITE, tmp_path], check=True, capture_output=True)
    found = recordmill.verify(tmp_path, "decode")
    assert (found.records, found.warnings) == (42, [])
    assert found.features["image"] == "bytes"
    (folder,) = tmp_path.glob("*/1.0.0")
    shard = min(folder.glob("*train*00001-of-*"))
    shard.unlink()
    ended = command("verify", folder)
    assert ended.code == 3
    assert f"{shard}: is missing; dataset_info.json states" in ended.err
