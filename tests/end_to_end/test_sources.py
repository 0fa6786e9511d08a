"""Images in tables and in published datasets; tests/sources has every source and preset."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import Ended, convert, published, recordmill
from tests.end_to_end.sources import SINGLE_LABEL
from tests.shots import Shot, shots


def test_a_published_dataset_is_a_source(tmp_path: Path) -> None:
    """Re-shards, re-keys and re-splits; class names come from their file."""
    splits = ("--splits", "train=0.7,test=0.3", "--num_shards", "3")
    first = published(_written("folder", tmp_path, shots()), tmp_path / "out", *splits)
    flags = (
        *("--classes", first / "label.labels.txt", "--key_column", "image/filename"),
        *("--split_column", "split", "--num_shards", "1"),
    )
    second = published(first / "*.tfrecord*", tmp_path / "again", *flags)
    assert recordmill("verify", "--decode", second).code == 0
    for split in ("train", "test"):
        contents = [
            sorted((e["image"], e["label"]) for e in readers.examples(dataset, split))
            for dataset in (first, second)
        ]
        assert contents[0] == contents[1]
        assert sorted(readers.keys(first, split)) == sorted(readers.keys(second, split))
        assert len(readers.shards(second, split)) == 1


def _written(name: str, root: Path, given: list[Shot]) -> Path:
    return SINGLE_LABEL[name].write(root, given)


def is_usage_error(ended: Ended, *expected: str) -> bool:
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    return all(words in ended.err for words in expected)


def test_a_damaged_image_in_a_blob_is_reported_by_its_table(tmp_path: Path) -> None:
    given = [*shots(3), Shot("bad.jpg", b"\xff\xd8\xff cut", 1, 1, "cat", (), ())]
    table = _written("parquet structs", tmp_path, given)
    dataset = published(table, tmp_path / "out", "--max_rejects", "1")
    (reject,) = readers.rejects(dataset)
    assert (reject["key"], reject["uri"]) == ("bad.jpg", str(table))
    assert (reject["source"], reject["reason"]) == (f"{table}:4", "truncated")


def test_a_failed_run_leaves_no_staged_image(tmp_path: Path) -> None:
    given = [*shots(3), Shot("bad.jpg", b"no image", 1, 1, "cat", (), ())]
    ended = convert(_written("parquet structs", tmp_path, given), tmp_path / "out")
    assert ended.code == 4
    assert not (tmp_path / "out/birds/1.0.0/.staging").exists()


def test_staged_images_of_a_killed_run_are_deleted_by_the_next_run(tmp_path: Path) -> None:
    staging = tmp_path / "out/birds/.1.0.0.run/dataset/.staging"
    staging.mkdir(parents=True)
    (staging / f"{'0a' * 16}.images").write_bytes(b"left")
    dataset = published(_written("parquet bytes", tmp_path, shots(3)), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out/birds").iterdir()] == ["1.0.0"]
    assert not (dataset / ".staging").exists()
    assert recordmill("verify", dataset).code == 0


@pytest.mark.parametrize(
    ("write", "flags", "expected"),
    [
        ("tfrecord", ("--schema", "tabular"), ("image/encoded", "contains images")),
        ("tfrecord", ("--columns", "image=x"), ("'x'", "--columns image=COLUMN")),
        ("tar", ("--image_root", "."), ("--image_root", "Remove --image_root")),
        ("folder", ("--input_format", "tar"), ("is a folder",)),
        ("tar", ("--input_format", "folder"), ("is a file",)),
        ("tar", ("--input_format", "coco"), ("not a JSON document",)),
        ("folder", ("--labels", "l.csv"), ("--join_on",)),
        ("folder", ("--join_on", "id"), ("--labels",)),
        ("folder", ("--labels", "nowhere.csv", "--join_on", "id"), ("--labels nowhere.csv",)),
        (
            "folder",
            ("--labels", "l.csv", "--join_on", "key"),
            ("--join_on key", "image, label, id"),
        ),
        ("folder", ("--labels", "l.csv", "--join_on", "label"), ("l.csv has no column 'label'",)),
        ("folder", ("--records_per_shard", "0"), ("--records_per_shard",)),
        ("folder", ("--records_per_shard", "2", "--num_shards", "2"), ("Remove one of them",)),
        ("folder", ("--records_per_shard", "2", "--shard_size", "1MiB"), ("Remove one of them",)),
    ],
)
def test_invalid_usage_is_reported(
    write: str,
    flags: tuple[str, ...],
    expected: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("l.csv").write_text("id,landmark_id\n000,1\n")
    assert is_usage_error(
        convert(_written(write, tmp_path, shots(2)), tmp_path / "out", *flags), *expected
    )
