"""The loop of the TensorFlow tutorial on a table without images: one process, one file."""

from __future__ import annotations

import csv
from pathlib import Path

import tensorflow as tf

from benchmarks.baseline import Outcome, main


def convert(table: Path, output: Path) -> Outcome:
    """Writes all rows of a table to one TFRecord file."""
    records = 0
    with (
        table.open(newline="", encoding="utf-8") as stream,
        tf.io.TFRecordWriter(str(output / "rows.tfrecords")) as writer,
    ):
        for row in csv.DictReader(stream):
            writer.write(_example(row).SerializeToString())
            records += 1
    return Outcome(records)


def _example(row: dict[str, str]) -> tf.train.Example:
    features = {
        "id": _bytes_feature(row["id"]),
        "member": _int64_feature(row["member"] == "true"),
        "visits": _int64_feature(int(row["visits"])),
        "name": _bytes_feature(row["name"]),
        "score": tf.train.Feature(float_list=tf.train.FloatList(value=[float(row["score"])])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def _int64_feature(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value: str) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))


if __name__ == "__main__":
    main(convert)
