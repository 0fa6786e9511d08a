"""File names of a dataset, compared with those that TFDS uses."""

from __future__ import annotations

import pytest
import tensorflow_datasets as tfds

from recordmill.schemas import layout


@pytest.mark.parametrize(
    ("folder", "names", "expected"),
    [
        ("out", ["birds", "1.0.0"], "out/birds/1.0.0"),
        ("out/", ["birds"], "out/birds"),
        ("/", ["birds"], "/birds"),
        ("gs://b", ["x"], "gs://b/x"),
        ("s3://b/out//", ["x"], "s3://b/out/x"),
    ],
)
def test_join(folder, names, expected):
    assert layout.join(folder, *names) == expected


def test_fixed_file_names():
    assert layout.SIDECARS == (
        "features.json",
        "dataset_info.json",
        "schema.pbtxt",
        "croissant.json",
        "README.md",
        "removal.json",
        "manifest.json",
        "run.json",
        "report.html",
        "_SUCCESS",
    )
    assert (layout.RECORDS, layout.REJECTS) == ("records", "rejects")


@pytest.mark.parametrize(
    ("index", "count", "compression", "expected"),
    [
        (0, 1, "none", "d-train.tfrecord-00000-of-00001"),
        (3, 16, "none", "d-train.tfrecord-00003-of-00016"),
        (99_998, 99_999, "none", "d-train.tfrecord-99998-of-99999"),
        (0, 1, "gzip", "d-train.tfrecord-00000-of-00001.gz"),
    ],
)
def test_shard_names(index, count, compression, expected):
    assert layout.shard_name("d", "train", index, count, compression) == expected


def test_shard_names_are_those_that_tfds_expects():
    template = tfds.core.ShardedFileTemplate(
        template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        data_dir="/d",
        dataset_name="birds",
        split="train_2",
        filetype_suffix="tfrecord",
    )
    expected = [path.name for path in template.sharded_filepaths(12)]
    assert [layout.shard_name("birds", "train_2", i, 12) for i in range(12)] == expected


def test_records_names():
    assert layout.records_name("train", 3, 16) == "records/records-train-00003-of-00016.parquet"


@pytest.mark.parametrize("feature", ["label", "image/class/label", "a.b/c", "labels"])
def test_labels_names_are_those_that_tfds_writes(feature, tmp_path):
    label = tfds.features.ClassLabel(names=["cat", "dog"])
    features = tfds.features.FeaturesDict({feature: label, "other": tfds.features.Text()})
    features.save_metadata(str(tmp_path))
    written = {path.name for path in tmp_path.iterdir() if path.name.endswith(".labels.txt")}
    assert written == {layout.labels_name(feature)}
