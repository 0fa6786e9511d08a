"""10,000 rows of typed values equal, value for value, what TensorFlow's own helpers write."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.end_to_end.tables import write_table

NUMBER = 10_000
ANIMALS = ("cat", "dog", "chicken", "horse", "goat")


def rows() -> list[dict[str, Any]]:
    """Returns the rows of TensorFlow's TFRecord tutorial, with a key."""
    chance = random.Random(0)
    choices = [chance.randrange(5) for _ in range(NUMBER)]
    return [
        {
            "feature0": chance.random() < 0.5,
            "feature1": choices[i],
            "feature2": ANIMALS[choices[i]],
            "feature3": chance.gauss(0, 1),
            "row": i,
        }
        for i in range(NUMBER)
    ]


def serialized_by_tensorflow(row: dict[str, Any]) -> bytes:
    """Returns the example of a row as the tutorial makes it."""
    feature = {
        "feature0": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(row["feature0"])])),
        "feature1": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["feature1"]])),
        "feature2": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[row["feature2"].encode()])
        ),
        "feature3": tf.train.Feature(float_list=tf.train.FloatList(value=[row["feature3"]])),
        "row": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["row"]])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


@pytest.fixture(scope="module", params=["csv", "parquet"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tabular")
    table = write_table(folder / f"table.{request.param}", rows())
    return published(table, folder / "out", "--schema", "tabular", "--key_column", "row")


def test_records_are_what_tensorflows_own_helpers_write(dataset: Path) -> None:
    expected = {str(row["row"]): serialized_by_tensorflow(row) for row in rows()}
    keys = readers.keys(dataset, "train")
    assert len(keys) == NUMBER
    assert dict(zip(keys, readers.records(dataset, "train"), strict=True)) == expected


def test_tensorflow_parses_the_values_of_the_table(dataset: Path) -> None:
    spec = {
        "feature0": tf.io.FixedLenFeature([], tf.int64),
        "feature1": tf.io.FixedLenFeature([], tf.int64),
        "feature2": tf.io.FixedLenFeature([], tf.string),
        "feature3": tf.io.FixedLenFeature([], tf.float32),
        "row": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = readers.parsed(dataset, "train", spec)
    order = np.argsort(parsed["row"])
    expected = rows()
    for name, convert in {
        "feature0": int,
        "feature1": int,
        "feature2": str.encode,
        "feature3": lambda value: float(np.float32(value)),
    }.items():
        assert [parsed[name][i] for i in order] == [convert(row[name]) for row in expected]
