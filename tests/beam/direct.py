"""Helpers of the Beam tests: the runner, and the schema, plan and rows of a small dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.elements import AssignedRows

TABLE = "/tables/labels.csv"
SCHEMA = preset("image_classification")
RESOLVED = ResolvedSchema(SCHEMA, {"label": ("cat", "dog")})


def direct_pipeline(bundle_repeat: int = 0) -> TestPipeline:
    """Returns a pipeline on Beam's in-process runner, which never becomes Prism."""
    return TestPipeline(runner=FnApiRunner(bundle_repeat=bundle_repeat))


def config(output: Path | str = "/out", **options: Any) -> ConvertConfig:
    """Returns the settings of an image classification dataset."""
    options = {"dataset_schema": SCHEMA, **options}
    return ConvertConfig(inputs=(TABLE,), output=str(output), name="birds", **options)


def plan(rows: int = 0, **shards: int) -> Plan:
    """Returns a plan with the given number of shards per split."""
    return Plan(RESOLVED, shards, rows)


def ref(name: str, line: int, folder: Path | str = "/images", label: int = 0) -> ImageRef:
    """Returns the reference of an image."""
    return ImageRef(
        key=name,
        uri=f"{folder}/{name}",
        start=None,
        stop=None,
        values=(None, name.encode(), label),
        file=TABLE,
        line=line,
    )


def example(name: str, image: bytes, label: int = 0) -> bytes:
    """Returns the example of an image, serialized by TensorFlow."""

    def of_bytes(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {
        "image": of_bytes(image),
        "image/filename": of_bytes(name.encode()),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString(deterministic=True)


def records(shard: Path | str, compression: str = "") -> list[bytes]:
    """Returns the records of a shard as TensorFlow reads them."""
    return list(tf.data.TFRecordDataset(str(shard), compression).as_numpy_iterator())


def flat(batches: beam.PCollection[Any], label: str = "Flat") -> beam.PCollection[Any]:
    """Returns the elements of batches one by one."""
    return batches | label >> beam.FlatMap(lambda batch: batch)


def single(rows: beam.PCollection[AssignedRows], label: str = "Single") -> beam.PCollection[Any]:
    """Returns each assigned row on its own: ((split, shard), (order, ImageRef))."""
    return rows | label >> beam.FlatMap(
        lambda assigned: [(assigned[0], ordered) for ordered in assigned[1]]
    )


def as_tuples(rejects: beam.PCollection[Reject], label: str) -> beam.PCollection[tuple[str, ...]]:
    """Returns the fields of each reject as a tuple; asserts that it has a detail."""
    return rejects | label >> beam.Map(_as_tuple)


def _as_tuple(reject: Reject) -> tuple[str, ...]:
    assert reject.detail
    return reject.key, reject.uri, reject.source, reject.reason.value, reject.split
