"""The four-feature table of TensorFlow's TFRecord tutorial: observations of a bool, an
integer, a text and a float32, and the single example that it parses back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.end_to_end.tables import write_table

OBSERVATIONS = 2_000
ANIMALS = np.array([b"cat", b"dog", b"chicken", b"horse", b"goat"])
DESCRIPTION = {  # the tutorial's feature_description, without its defaults
    "feature0": tf.io.FixedLenFeature([], tf.int64),
    "feature1": tf.io.FixedLenFeature([], tf.int64),
    "feature2": tf.io.FixedLenFeature([], tf.string),
    "feature3": tf.io.FixedLenFeature([], tf.float32),
}


def observations() -> list[dict[str, Any]]:
    """Returns the rows as the tutorial draws them."""
    random = np.random.default_rng(0)
    choices = random.integers(0, 5, OBSERVATIONS)
    columns = zip(
        random.choice([False, True], OBSERVATIONS).tolist(),
        choices.tolist(),
        ANIMALS[choices].tolist(),
        random.standard_normal(OBSERVATIONS).tolist(),
        strict=True,
    )
    return [dict(zip(DESCRIPTION, row, strict=True)) for row in columns]


def serialized_by_tensorflow(row: dict[str, Any]) -> bytes:
    """Returns the example of a row as the tutorial's serialize_example makes it."""
    feature = {
        "feature0": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["feature0"]])),
        "feature1": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["feature1"]])),
        "feature2": tf.train.Feature(bytes_list=tf.train.BytesList(value=[row["feature2"]])),
        "feature3": tf.train.Feature(float_list=tf.train.FloatList(value=[row["feature3"]])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def table_of(rows: list[dict[str, Any]], path: Path) -> Path:
    """Writes a table; only Parquet can hold bytes, the others hold text."""
    text = path.suffix != ".parquet"
    return write_table(
        path, [{**row, "feature2": row["feature2"].decode()} if text else row for row in rows]
    )


@pytest.mark.parametrize(
    ("suffix", "first", "number"), [("csv", 2, OBSERVATIONS), ("parquet", 1, 500)]
)
def test_records_equal_those_of_the_helpers_of_tensorflow(
    suffix: str, first: int, number: int, tmp_path: Path
) -> None:
    rows = observations()[:number]
    table = table_of(rows, tmp_path / f"table.{suffix}")
    dataset = published(table, tmp_path / "out", "--schema", "tabular")
    keys = readers.keys(dataset, "train")
    assert len(keys) == number
    expected = {
        f"table.{suffix}:{line}": serialized_by_tensorflow(row)
        for line, row in enumerate(rows, start=first)
    }
    assert dict(zip(keys, readers.records(dataset, "train"), strict=True)) == expected
    in_order = [rows[int(key.rpartition(":")[2]) - first] for key in keys]
    assert readers.parsed(dataset, "train", DESCRIPTION) == {
        "feature0": [int(row["feature0"]) for row in in_order],
        "feature1": [row["feature1"] for row in in_order],
        "feature2": [row["feature2"] for row in in_order],
        "feature3": [float(np.float32(row["feature3"])) for row in in_order],
    }


def test_the_single_example(tmp_path: Path) -> None:
    row = dict(zip(DESCRIPTION, (False, 4, b"goat", 0.9876), strict=True))
    dataset = published(
        table_of([row], tmp_path / "one.csv"), tmp_path / "out", "--schema", "tabular"
    )
    (record,) = readers.records(dataset, "train")
    assert record == serialized_by_tensorflow(row)
    parsed = tf.io.parse_single_example(record, DESCRIPTION)
    assert {name: value.numpy() for name, value in parsed.items()} == {
        "feature0": 0,
        "feature1": 4,
        "feature2": b"goat",
        "feature3": np.float32(0.9876),
    }
    assert float(parsed["feature3"]) == 0.9876000285148621
