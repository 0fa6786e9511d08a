"""The loop of the TensorFlow tutorial: one process, one writer, one file.

It calls `tf.io.decode_jpeg` for the shape and does not check its output.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from benchmarks.baseline import Outcome, main
from benchmarks.rows import Row, read_table


def convert(table: Path, output: Path) -> Outcome:
    """Writes all images of a table to one TFRecord file."""
    rows = read_table(table)
    class_ids = {label: number for number, label in enumerate(sorted({row.label for row in rows}))}
    with tf.io.TFRecordWriter(str(output / "images.tfrecords")) as writer:
        for row in rows:
            writer.write(_image_example(row, class_ids[row.label]).SerializeToString())
    return Outcome(len(rows))


def _image_example(row: Row, label: int) -> tf.train.Example:
    data = Path(row.image).read_bytes()
    height, width, depth = tf.io.decode_jpeg(data).shape
    features = {
        "height": _int64_feature(height),
        "width": _int64_feature(width),
        "depth": _int64_feature(depth),
        "label": _int64_feature(label),
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def _int64_feature(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


if __name__ == "__main__":
    main(convert)
