"""Files of TensorFlow, TensorFlow Datasets and Beam are verified without a false alarm."""

from __future__ import annotations

import base64
import gzip
import tempfile
import zlib
from pathlib import Path

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.io.filesystem import CompressionTypes

import recordmill
from tests.end_to_end.command import recordmill as command

# Run as a program of its own: it imports the package in the lines below.
WRITE = """
import numpy as np
import tensorflow_datasets as tfds

class Birds(tfds.core.GeneratorBasedBuilder, skip_registration=True):
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

Birds.pkg_dir_path = folder
config = tfds.download.DownloadConfig(num_shards=3)
Birds(data_dir=folder).download_and_prepare(download_config=config)
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


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_a_file_of_tensorflow_without_records_is_verified(compression: str, tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord"), compression):
        pass
    found = recordmill.verify(tmp_path / "a.tfrecord")
    assert found.records == 0
    assert [problem.message for problem in found.warnings] == ["has no records"]


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
    exec(WRITE, {"__name__": "birds", "folder": tmp_path})  # noqa: S102 - our own lines
    found = recordmill.verify(tmp_path, "decode")
    assert (found.records, found.warnings) == (42, [])
    assert found.features["image"] == "bytes"
    (folder,) = tmp_path.glob("*/1.0.0")
    shard = min(folder.glob("*train*00001-of-*"))
    shard.unlink()
    ended = command("verify", folder)
    assert ended.code == 3
    assert f"{shard}: is missing; dataset_info.json states" in ended.err


def framed(*numbers: int) -> bytes:
    """Returns a file of examples as TensorFlow writes it."""
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            for number in numbers:
                writer.write(example(number))
        return Path(file.name).read_bytes()


# Written by version 1.14.6 of the package `tfrecord`: two examples, and their index.
TFRECORD_PACKAGE = base64.b64decode(
    "OQAAAAAAAACLBzfxCjcKDgoFaW1hZ2USBQoDCgF5Cg4KBWxhYmVsEgUaAwoBAAoVCgVzY29yZRIMEgoKCAAAAD8AAMA/"
    "WSVUJjoAAAAAAAAAEpXq4go4Cg8KBWltYWdlEgYKBAoCeHkKDgoFbGFiZWwSBRoDCgEBChUKBXNjb3JlEgwSCgoIAAAA"
    "PwAAwD+3y9qH"
)
PART = "part-0000{}-6f5c1c1e-4a2b-4a53-9c1a-6c4b1e1f2d3a-c000.tfrecord"
CHECKSUMS = {f".{PART.format(n)}.crc": b"crc\0\0\0\2\0" for n in (0, 1)}
EMPTY_GZIP = gzip.compress(b"", mtime=0)

LAYOUTS = {
    "tfrecord": {"data.tfrecord": TFRECORD_PACKAGE, "data.tfindex": b"0 73\n73 74\n"},
    # ray.data.Dataset.write_tfrecords: {uuid}_{block_idx}.tfrecords
    "ray": {f"4a5e8f_{n:06}.tfrecords": framed(n) for n in range(2)},
    # linkedin/spark-tfrecord, DefaultSource.scala: .tfrecord and the extension of the codec
    "spark-tfrecord": {
        **{PART.format(n): framed(n) for n in range(2)},
        **CHECKSUMS,
        **{"_SUCCESS": b"", "._SUCCESS.crc": b"crc\0"},
    },
    "spark-tfrecord, gzip, partitioned": {
        f"day={n}/{PART.format(0)}.gz": gzip.compress(framed(n)) for n in range(2)
    },
    "spark-tfrecord, deflate": {
        f"{PART.format(n)}.deflate": zlib.compress(framed(n)) for n in range(2)
    },
    # tensorflow/ecosystem, spark-tensorflow-connector: parts without records are empty
    "spark-tensorflow-connector": {
        **{"part-r-00000": b"", "part-r-00001": framed(0, 1), "part-r-00002": b""},
        "_SUCCESS": b"",
    },
    "spark-tensorflow-connector, gzip": {
        **{"part-r-00000.gz": EMPTY_GZIP, "part-r-00001.gz": gzip.compress(framed(0, 1))},
        "_SUCCESS": b"",
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_other_tools_are_verified(layout: str, tmp_path: Path) -> None:
    for name, data in LAYOUTS[layout].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = recordmill.verify(tmp_path)
    assert (found.records, found.warnings) == (2, [])
    assert (found.features["image"], found.features["label"]) == ("bytes", "int64")
