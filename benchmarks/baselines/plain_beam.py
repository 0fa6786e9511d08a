"""Plain Beam: a Map that reads, decodes and serializes, in front of `WriteToTFRecord`.

The obvious pipeline. To fill a fixed number of shards, `WriteToTFRecord` shuffles whole records,
including their images.
"""

from __future__ import annotations

import io
from pathlib import Path

import apache_beam as beam
import tensorflow as tf
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from PIL import Image

from benchmarks.baseline import Outcome, main
from benchmarks.rows import Row, read_table
from benchmarks.shuffle import metered_shuffle


def convert(table: Path, output: Path) -> Outcome:
    """Writes all images of a table to 16 shards with Beam's in-process runner, not Prism."""
    rows = read_table(table)
    class_ids = {label: number for number, label in enumerate(sorted({row.label for row in rows}))}
    with metered_shuffle() as shuffled, beam.Pipeline(runner=FnApiRunner()) as root:
        _ = (
            root
            | "Rows" >> beam.Create(rows)
            | "BuildExample" >> beam.Map(serialized_example, class_ids)
            | "Write" >> beam.io.WriteToTFRecord(str(output / "images.tfrecord"), num_shards=16)
        )
    return Outcome(len(rows), shuffled.bytes)


def serialized_example(row: Row, class_ids: dict[str, int]) -> bytes:
    """Returns the serialized example of a row, after decoding its image.

    Args:
        row: of the table.
        class_ids: class id by label.
    """
    data = Path(row.image).read_bytes()
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        width, height = image.size
        depth = len(image.getbands())
    features = {
        "height": _int64_feature(height),
        "width": _int64_feature(width),
        "depth": _int64_feature(depth),
        "label": _int64_feature(class_ids[row.label]),
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


def _int64_feature(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


if __name__ == "__main__":
    main(convert)
