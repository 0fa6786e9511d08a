"""`recordmill diff` reports exactly the changes between the tables of two datasets."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

SCHEMA = """
features:
  image: {kind: bytes, from: "image:bytes"}
  label: {kind: int64, from: "column:label", classes: true}
  note: {kind: bytes, from: "column:note"}
"""


@pytest.fixture(scope="module")
def here(images: list[Photo], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("diff")
    (here / "schema.yaml").write_text(SCHEMA)
    (here / "classes.txt").write_text("cat\nhorse\nÜbermut\n")
    shutil.copytree(folder, here / "images")
    return here


def rows_of(images: list[Photo]) -> list[dict[str, Any]]:
    splits = ["train", "train", "test"]
    return [
        {"image": p.path, "label": p.label, "note": f"n{n}", "split": splits[n % 3]}
        for n, p in enumerate(images)
    ]


def dataset(here: Path, name: str, rows: list[dict[str, Any]], *flags: object) -> Path:
    table = write_table(here / "images" / f"{name}.csv", rows)
    schema = ("--schema", here / "schema.yaml", "--split_column", "split")
    return published(table, here, *schema, "--classes", here / "classes.txt", *flags, name=name)


@pytest.fixture(scope="module")
def left(here: Path, images: list[Photo]) -> Path:
    return dataset(here, "left", rows_of(images), "--num_shards", "train=3")


@pytest.fixture(scope="module")
def right(here: Path, images: list[Photo]) -> Path:
    """Other order, shards and compression; 1 and 4 differ, 4 and 7 moved, 0 is missing."""
    rows = rows_of(images)
    rows[1]["note"] = "changed"
    other = here / "images" / "other.jpg"
    other.write_bytes(images[6].data)
    rows[4] |= {
        "label": "cat" if rows[4]["label"] != "cat" else "horse",
        "note": "",
        "split": "test",
    }
    rows[7]["split"] = "test"
    rows.append(rows[3] | {"image": "other.jpg"})
    return dataset(here, "right", rows[1:], "--seed", "5", "--compression", "gzip")


def compare(*arguments: object) -> tuple[int, dict[str, Any]]:
    ended = recordmill("diff", *arguments, "--json")
    assert ended.err == ""
    assert ended.out.count("\n") == 1
    return ended.code, json.loads(ended.out)


def test_changes_are_reported(left: Path, right: Path, images: list[Photo]) -> None:
    code, document = compare(left, right)
    assert code == 3
    examples = document.pop("examples")
    assert document == {
        **{"state": "different", "exit_code": 3, "message": ""},
        "equal": False,
        "left": {"directory": str(left), "name": "left", "version": "1.0.0", "records": 12},
        "right": {"directory": str(right), "name": "right", "version": "1.0.0", "records": 12},
        "same": 8,
        "different": 2,
        "features": {"label": 1, "note": 2},
        "moved": [{"from": "train", "to": "test", "records": 1}],
        "only_left": {"train": 1},
        "only_right": {"train": 1},
        "notes": [],
    }
    keys = {name: [_key(e) for e in found] for name, found in examples.items()}
    assert {name: set(found) for name, found in keys.items()} == {
        "different": {images[1].path, images[4].path},
        "moved": {images[7].path},
        "only_left": {images[0].path},
        "only_right": {"other.jpg"},
    }
    by_key = {_key(e): e for e in examples["different"]}
    classes = ["cat", "horse", "Übermut"]
    old = classes.index(images[4].label)
    assert by_key[images[1].path]["features"] == {"note": {"left": "n1", "right": "changed"}}
    assert by_key[images[4].path]["features"] == {
        "label": {
            **{"left": old, "right": 0 if old else 1},
            **{"left_class": classes[old], "right_class": classes[0 if old else 1]},
        },
        "note": {"left": "n4", "right": ""},
    }
    for found in examples.values():
        for example in found:
            for dataset_, location in locations(example, left, right):
                assert (
                    readers.keys(dataset_, location["split"])[number_of(dataset_, location)]
                    == location["key"]
                )


def _key(example: dict[str, Any]) -> str:
    key: str = example.get("left", example)["key"]
    return key


def locations(
    example: dict[str, Any], left: Path, right: Path
) -> list[tuple[Path, dict[str, Any]]]:
    if "left" in example:
        return [(left, example["left"]), (right, example["right"])]
    return [(left if "left" in example["file"] else right, example)]


def number_of(dataset_: Path, location: dict[str, Any]) -> int:
    """Returns the number of a record within its split."""
    shards = [path.name for path in readers.shards(dataset_, location["split"])]
    shard = shards.index(location["file"])
    rows = readers.index_rows(dataset_, location["split"])
    return [(row["shard"], row["index"]) for row in rows].index((shard, location["index"]))


def test_the_reverse_comparison(left: Path, right: Path) -> None:
    _, there = compare(left, right)
    _, back = compare(right, left)
    assert (back["same"], back["different"]) == (there["same"], there["different"])
    assert (back["only_left"], back["only_right"]) == (there["only_right"], there["only_left"])
    assert back["moved"] == [{"from": "test", "to": "train", "records": 1}]


def test_the_table_for_people(left: Path, right: Path, images: list[Photo]) -> None:
    ended = recordmill("diff", left, right, "-n", "1")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert ended.code == 3
    assert lines[:7] == [
        f"left {left} (12 records)",
        f"right {right} (12 records)",
        "same 8",
        "different 2 label 1, note 2",
        "moved 1 train → test 1",
        "only left 1 train 1",
        "only right 1 train 1",
    ]
    assert f"{images[7].path} (train → test)" in lines
    assert "other.jpg (train)" in lines
    assert lines.count("different:") == lines.count("moved:") == 1


def test_shards_and_order_do_not_matter(here: Path, left: Path, images: list[Photo]) -> None:
    again = dataset(here, "again", rows_of(images)[::-1], "--seed", "9", "--compression", "gzip")
    code, document = compare(left, again)
    assert (code, document["equal"], document["same"]) == (0, True, 12)
    assert recordmill("diff", left, left).code == 0


def test_the_same_shards_are_not_read_again(left: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(left, tmp_path / "copied")
    for split in ("train", "test"):
        for shard in readers.shards(copied, split):
            shard.write_bytes(b"")
    assert compare(left, copied)[1]["same"] == 12


def test_classes_and_features_that_differ_are_reported(
    here: Path, left: Path, images: list[Photo]
) -> None:
    (here / "more.txt").write_text("cat\nhorse\nÜbermut\nowl\n")
    more = dataset(here, "more", rows_of(images), "--classes", here / "more.txt")
    code, document = compare(left, more)
    assert (code, document["same"]) == (3, 12)
    assert document["notes"] == ["classes of 'label': only right owl"]

    (here / "schema.yaml").write_text(SCHEMA + "  id: {kind: bytes, from: key}\n")
    wider = dataset(here, "wider", rows_of(images))
    (here / "schema.yaml").write_text(SCHEMA)
    code, document = compare(left, wider, "-n", "1")
    assert (code, document["same"], document["features"]) == (3, 0, {"id": 12})
    assert document["notes"] == ["feature 'id': only right"]
    ((_, change),) = document["examples"]["different"][0]["features"].items()
    assert change["left"] is None


def test_images_that_differ_are_reported_by_their_digests(
    here: Path, left: Path, images: list[Photo]
) -> None:
    path = here / "images" / images[2].path
    whole = path.read_bytes()
    path.write_bytes(images[8].data)
    other = dataset(here, "other", rows_of(images))
    path.write_bytes(whole)
    _, document = compare(left, other)
    (example,) = document["examples"]["different"]
    assert example["features"] == {
        "image": {
            "left": f"{len(whole):,} bytes, sha256 {images[2].sha256[:12]}…",
            "right": f"{len(images[8].data):,} bytes, "
            f"sha256 {hashlib.sha256(images[8].data).hexdigest()[:12]}…",
        }
    }


def test_an_unpublished_dataset_is_a_usage_error(left: Path, tmp_path: Path) -> None:
    ended = recordmill("diff", left, tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"recordmill: {tmp_path}: not a published dataset")
    assert recordmill("diff", left).code == 2


@pytest.mark.parametrize("damaged", ["plain", "gzip"])
def test_a_damaged_shard_is_reported(left: Path, right: Path, tmp_path: Path, damaged: str) -> None:
    whole, broken = (right, left) if damaged == "plain" else (left, right)
    copied = shutil.copytree(broken, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    shard.write_bytes(shard.read_bytes()[:-9])
    ended = recordmill("diff", whole, copied)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"recordmill: {copied}/{shard.name}: ")
    assert "run recordmill verify for details" in ended.err


@pytest.mark.parametrize("change", ["one less", "one more"])
def test_a_shard_that_does_not_fit_its_index_is_reported(
    left: Path, right: Path, tmp_path: Path, change: str
) -> None:
    copied = shutil.copytree(left, tmp_path / "copied")
    shard = readers.shards(copied, "test")[0]
    data = shard.read_bytes()
    last = readers.frames(data)[-1]
    shard.write_bytes(data[: last.start] if change == "one less" else data + data[last.start :])
    ended = recordmill("diff", right, copied)
    assert (ended.code, ended.out) == (3, "")
    assert f"{shard.name}: the shard has other records than its index" in ended.err
