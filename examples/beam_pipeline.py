"""Builds examples in a custom Beam pipeline, and writes them with Beam's own sink.

python examples/beam_pipeline.py labels.parquet photos examples

The table has the columns `file`, relative to the folder of images, and `label`, a class name or id.
"""

import sys

import apache_beam as beam
import pyarrow.parquet as pq

import recordmill


def main(table: str, image_root: str, output: str) -> None:
    """Writes OUTPUT-*.tfrecord and OUTPUT-*.rejects.

    Args:
        table: a Parquet file.
        image_root: folder of the images.
        output: prefix of the output files.
    """
    labels = set(pq.read_table(table, columns=["label"])["label"].to_pylist())
    build = recordmill.BuildExamples(
        "tf_slim",
        classes=sorted(labels) if all(isinstance(label, str) for label in labels) else None,
        columns={"image": "file"},
        image_root=image_root,
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        built = pipeline | beam.io.ReadFromParquet(table) | build
        built.examples | beam.io.WriteToTFRecord(output, file_name_suffix=".tfrecord", num_shards=2)
        built.rejects | beam.io.WriteToText(output, file_name_suffix=".rejects", num_shards=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
