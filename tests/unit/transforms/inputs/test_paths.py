"""Tests of the listing of inputs: patterns, folders of tables, and their partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.schemas.errors import UsageError
from recordmill.transforms.inputs.paths import ListedPath, is_folder, list_paths, similar_path


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_files_of_a_pattern_are_sorted(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "_SUCCESS", "c.jsonl")
    assert list_paths(f"{tmp_path}/*.csv", "auto") == [
        ListedPath(f"{tmp_path}/a.csv"),
        ListedPath(f"{tmp_path}/b.csv"),
    ]
    assert [path for path, _, _ in list_paths(f"{tmp_path}/*", "auto")] == [
        f"{tmp_path}/{name}" for name in ("a.csv", "b.csv", "c.jsonl")
    ]


def test_tables_of_a_folder_have_its_partitions(tmp_path: Path) -> None:
    touch(tmp_path, "year=2024/site=A%2FB/part-0.parquet", "year=2025/part-1.parquet")
    first, second = (f"{tmp_path}/{name}" for name in ("year=2024", "year=2025"))
    assert list_paths(str(tmp_path), "auto") == [
        ListedPath(
            f"{first}/site=A%2FB/part-0.parquet", (("year", "2024"), ("site", "A/B")), str(tmp_path)
        ),
        ListedPath(f"{second}/part-1.parquet", (("year", "2025"),), str(tmp_path)),
    ]
    assert list_paths(f"{tmp_path}/year=*", "auto") == [
        ListedPath(
            f"{first}/site=A%2FB/part-0.parquet", (("year", "2024"), ("site", "A/B")), first
        ),
        ListedPath(f"{second}/part-1.parquet", (("year", "2025"),), second),
    ]


def test_other_folders_are_listed_as_they_are(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.png", "labels.csv")
    assert list_paths(str(tmp_path), "auto") == [ListedPath(str(tmp_path))]
    (tmp_path / "cat" / "1.png").unlink()
    assert list_paths(str(tmp_path), "folder") == [ListedPath(str(tmp_path))]
    assert list_paths(str(tmp_path), "auto") == [
        ListedPath(f"{tmp_path}/labels.csv", (), str(tmp_path))
    ]


def test_tfrecords_below_a_folder_are_listed_with_the_splits_of_their_folders(tmp_path: Path):
    touch(tmp_path, "train/a.tfrecord", "test/x/b.record-00000-of-00001", "label_map.pbtxt")
    assert list_paths(str(tmp_path), "auto") == [
        ListedPath(f"{tmp_path}/test/x/b.record-00000-of-00001", (("split", "test"),)),
        ListedPath(f"{tmp_path}/train/a.tfrecord", (("split", "train"),)),
    ]
    for other in ("1.0.0/_SUCCESS", "x/features.json", "cat/1.jpg", "labels.csv"):
        touch(tmp_path, other)
        assert list_paths(str(tmp_path), "auto") == [ListedPath(str(tmp_path))]
        (tmp_path / other).unlink()


def test_tfrecords_whose_names_say_nothing_are_listed_by_their_content(tmp_path: Path) -> None:
    touch(tmp_path, "b/notes", "empty")
    assert list_paths(str(tmp_path), "auto") == [ListedPath(str(tmp_path))]
    for name in ("a/part-0", "b/part-1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            writer.write(b"record")
    assert list_paths(str(tmp_path), "auto") == [
        ListedPath(f"{tmp_path}/a/part-0"),
        ListedPath(f"{tmp_path}/b/part-1"),
    ]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("train.tfrecord-0-of-2", "notes.tfrecord", "x.csv"), ("train.tfrecord-0-of-2",)),
        (
            ("1.0.0/features.json", "1.0.0/a.tfrecord", "1.0.0/notes.tfrecord"),
            ("1.0.0/a.tfrecord",),
        ),
        (("a/x.tfrecord", "b/notes.tfrecord"), ("a/x.tfrecord",)),
    ],
    ids=["here", "of a version", "below"],
)
@pytest.mark.parametrize("format_", ["auto", "tfrecord"])
def test_patterns_leave_tfrecords_out(tmp_path: Path, names, kept, format_: str) -> None:
    touch(tmp_path, *names)
    exclude = ("notes*", "*.csv")
    expected = [ListedPath(f"{tmp_path}/{name}") for name in kept]
    assert list_paths(str(tmp_path), format_, exclude) == expected


@pytest.mark.parametrize(
    "names",
    [("a.tfrecord", "b.tfrecord"), ("a.tfrecord", "lost.jsonl"), ("x/a.tfrecord", "lost.jsonl")],
    ids=["shards", "salvaged", "below"],
)
def test_patterns_that_leave_all_tfrecords_out_stop(tmp_path: Path, names) -> None:
    touch(tmp_path, *names)
    with pytest.raises(UsageError) as error:
        list_paths(str(tmp_path), "auto", ("*.tfrecord",))
    assert str(error.value) == (
        f"{tmp_path}: --exclude leaves out all its TFRecord files. Remove a pattern."
    )


def test_patterns_apply_to_the_folders_that_a_wildcard_matches(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.csv", "a/old.csv", "b/y.tfrecord", "b/old.tfrecord")
    assert list_paths(f"{tmp_path}/*", "auto", ("old*",)) == [
        ListedPath(f"{tmp_path}/a/x.csv", (), f"{tmp_path}/a"),
        ListedPath(f"{tmp_path}/b/y.tfrecord"),
    ]


@pytest.mark.parametrize("exclude", [(), ("_*", ".*", "metadata/")])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Delta", ("part-0.parquet", "_delta_log/00000000000000000000.json")),
        ("Iceberg", ("data/part-0.parquet", "metadata/00001-5d.metadata.json")),
        ("Hudi", (".hoodie/hoodie.properties", "part-0.parquet")),
    ],
)
def test_no_pattern_hides_the_log_of_a_table(tmp_path: Path, kind, names, exclude) -> None:
    touch(tmp_path, *names)
    with pytest.raises(UsageError, match=rf": is a table of {kind}; .* deleted rows"):
        list_paths(str(tmp_path), "auto", exclude)


def test_a_missing_path_is_reported_with_a_similar_one(tmp_path: Path) -> None:
    touch(tmp_path, "labels.csv")
    with pytest.raises(UsageError) as error:
        list_paths(f"{tmp_path}/lables.csv", "auto")
    assert str(error.value) == (
        f"{tmp_path}/lables.csv: no such file (did you mean '{tmp_path}/labels.csv'?). Check the "
        "path and its permissions."
    )


def test_similar_paths_of_stores() -> None:
    assert similar_path("s3:/bucket/a.csv") == " (did you mean s3://bucket/a.csv?)"
    assert similar_path("s3://bucket/a.csv") == ""


def test_prefixes_of_stores_end_with_a_slash(tmp_path: Path) -> None:
    assert [is_folder("s3://bucket/a"), is_folder("s3://bucket/a/")] == [False, True]
    assert is_folder(str(tmp_path))
