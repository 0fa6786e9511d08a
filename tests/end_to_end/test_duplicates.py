"""Duplicate images are always reported, dropped on request, and every row is counted."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import Ended, convert, published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

SPLITS = (
    "--split_column",
    "split",
    "--splits",
    "train=1,test=0",
    "--num_shards",
    "2",
    "--no_report",
)


@pytest.fixture
def gallery(images: list[Photo], folder: Path, tmp_path: Path) -> Path:
    """A folder with the images, and copies of some of them."""
    for image in images:
        (tmp_path / image.path).parent.mkdir(exist_ok=True)
        (tmp_path / image.path).write_bytes(image.data)
    for name, i in (("0 first.jpg", 0), ("z last.jpg", 0), ("z again.jpg", 0), ("z leak.jpg", 3)):
        shutil.copy(tmp_path / images[i].path, tmp_path / name)
    return tmp_path


@pytest.fixture
def table(gallery: Path, images: list[Photo]) -> Path:
    rows = [{"image": p.path, "label": p.label, "split": "train"} for p in images]
    labels = {"0 first.jpg": images[0].label, "z last.jpg": "goat", "z again.jpg": "goat"}
    rows += [{"image": name, "label": label, "split": "train"} for name, label in labels.items()]
    rows.append({"image": "z leak.jpg", "label": images[3].label, "split": "test"})
    return write_table(gallery / "labels.csv", rows)


def manifest(dataset: Path) -> dict:
    return json.loads((dataset / "manifest.json").read_bytes())


def digests(dataset: Path, split: str) -> list[str]:
    """Returns the sha256 of each image, computed from the records."""
    found = readers.examples(dataset, split)
    return [hashlib.sha256(example["image"][0]).hexdigest() for example in found]


def warnings(ended: Ended) -> list[str]:
    return [line for line in ended.out.splitlines() if line.startswith(("warning", "note", "drop"))]


def test_duplicates_and_leakage_are_reported(
    table: Path, images: list[Photo], tmp_path: Path
) -> None:
    ended = convert(table, tmp_path / "out", *SPLITS)
    assert ended.code == 0, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    first, fourth = images[0].path, images[3].path
    (blurred,) = (photo.path for photo in images if photo.path.endswith("04.jpg"))
    assert manifest(dataset)["content"] == {
        "images": 12,
        "duplicates": {"train": 3},
        "leaks": [
            {
                "splits": ["test", "train"],
                "images": 1,
                "records": 2,
                "examples": [["z leak.jpg", fourth]],
            }
        ],
        "conflicts": {"images": 1, "records": 4, "examples": [["0 first.jpg", "z again.jpg"]]},
        "dropped_conflicts": {"images": 0, "records": 0, "examples": []},
    }
    assert warnings(ended) == [
        f"warning: test and train share 1 image (z leak.jpg = {fourth})",
        "warning: 1 image has more than one label (0 first.jpg = z again.jpg). "
        "Check which label is right.",
        "note: 3 records of train repeat the image of another record of train",
        f"note: 16 images are blurred ({blurred}, 0 first.jpg, …)",
        f"note: 16 images are tiny (0 first.jpg, {first}, …)",
        "warning: test lacks 3 of the 4 classes of 'label' (cat, goat, Übermut)",
        "note: 4 of the 4 classes of 'label' occur fewer than 10 times "
        "(goat: 2, cat: 4, Übermut: 4, …)",
    ]
    assert len(readers.keys(dataset, "train")) == 15
    assert first in readers.keys(dataset, "train")
    assert recordmill("verify", dataset).code == 0


def test_the_smallest_key_of_duplicate_images_is_kept(
    table: Path, images: list[Photo], tmp_path: Path
) -> None:
    ended = convert(table, tmp_path / "out", *SPLITS, "--deduplicate", "content")
    assert ended.code == 0, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    kept = {p.path for p in images[1:]} | {"0 first.jpg"}
    assert readers.splits(dataset) == {"train": kept, "test": set()}
    assert sorted(digests(dataset, "train")) == sorted({p.sha256 for p in images})
    document = manifest(dataset)
    counts = ("rows", "records", "rejected", "duplicates")
    assert [document["input"][name] for name in counts] == [16, 12, 0, 4]
    assert [document["splits"]["train"][name] for name in counts] == [15, 12, 0, 3]
    assert [document["splits"]["test"][name] for name in counts] == [1, 0, 0, 1]
    assert document["content"]["leaks"] == []
    assert document["content"]["duplicates"] == {}
    assert document["content"]["dropped_conflicts"] == {
        "images": 1,
        "records": 2,
        "examples": [["0 first.jpg", "z again.jpg"]],
    }
    (file,) = (dataset / "dropped").iterdir()
    rows = sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: row["key"])
    assert [(row["key"], row["repeats"], row.get("label")) for row in rows] == [
        (images[0].path, "0 first.jpg", None),
        ("z again.jpg", "0 first.jpg", "goat"),
        ("z last.jpg", "0 first.jpg", "goat"),
        ("z leak.jpg", images[3].path, None),
    ]
    assert rows[0]["source"] == f"{table}:2"
    assert warnings(ended)[0] == "dropped: 4 rows with the image of another row"
    assert recordmill("verify", dataset, "--decode").code == 0
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    ended = recordmill("verify", dataset)
    assert (ended.code, "dropped: expected 4 rows, " in ended.err) == (3, True)
    assert "got 3 rows, " in ended.err


def test_embedded_images_are_compared_like_files(
    table: Path, gallery: Path, tmp_path: Path
) -> None:
    flags = (*SPLITS, "--deduplicate", "content")
    one = published(table, tmp_path / "one", *flags)
    rows = list(csv.DictReader(table.open()))
    for row in rows:
        row["image"] = {"bytes": (gallery / row["image"]).read_bytes(), "path": row["image"]}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "labels.parquet")
    two = published(tmp_path / "labels.parquet", tmp_path / "two", *flags)
    assert readers.shard_bytes(one) == readers.shard_bytes(two)
    assert manifest(two)["input"]["duplicates"] == 4


def test_rows_in_another_order_give_the_same_bytes(table: Path, tmp_path: Path) -> None:
    flags = (*SPLITS, "--deduplicate", "content")
    one = published(table, tmp_path / "one", *flags)
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([head, *reversed(lines)]) + "\n")
    two = published(table, tmp_path / "two", *flags)
    assert readers.shard_bytes(one) == readers.shard_bytes(two)
    assert manifest(one)["content"] == manifest(two)["content"]


def test_duplicate_keys_and_unreadable_images_are_still_rejected(
    table: Path, tmp_path: Path
) -> None:
    with table.open("a") as stream:
        stream.write("z leak.jpg,goat,train\nmissing 1.jpg,goat,train\nmissing 2.jpg,goat,train\n")
    flags = (*SPLITS, "--deduplicate", "content", "--max_rejects", "3")
    dataset = published(table, tmp_path / "out", *flags)
    assert readers.reject_reasons(dataset) == [
        ("z leak.jpg", "labels.csv:18", "duplicate_key"),
        ("missing 1.jpg", "labels.csv:19", "missing_file"),
        ("missing 2.jpg", "labels.csv:20", "missing_file"),
    ]
    assert [manifest(dataset)["input"][n] for n in ("rows", "records", "duplicates")] == [19, 12, 4]
