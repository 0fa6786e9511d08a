"""Landmarks: photos in folders of cities, a table of landmark ids, joined on the file's stem."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from recordmill.schemas.records import UNMATCHED_LABELS
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.images import jpeg

CITIES = ("서울", "부산 시", "paris [fr]")
LANDMARKS = ("남대문 시장", "N서울타워", "😀")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, bytes]]:
    """Landmark id and image by the photo's id, on disk below `folder`."""
    return {
        f"사진 {i:02d}": (203_000 + i % 4, jpeg(12 + i, 20, i))
        for i in range(len(CITIES) * len(LANDMARKS) * 2)
    }


@pytest.fixture(scope="module")
def folder(photos: dict[str, tuple[int, bytes]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landmarks")
    for i, (id_, (_, data)) in enumerate(photos.items()):
        place = root / "train" / CITIES[i % 3] / LANDMARKS[i // 3 % 3]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{id_}.JPG").write_bytes(data)
    with (root / "train.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "landmark_id"])
        table.writerows([id_, landmark] for id_, (landmark, _) in photos.items())
        table.writerow(["nowhere", 203_001])
    return root


def made(folder: Path, output: Path, *flags: object) -> Path:
    labels = ("--labels", folder / "train.csv", "--join_on", "id", "--schema", "landmark")
    return published(folder / "train", output, *labels, *flags)


def test_every_photo_has_the_landmark_of_its_stem(
    folder: Path, photos: dict[str, tuple[int, bytes]], tmp_path: Path
) -> None:
    dataset = made(folder, tmp_path)
    found = {
        e["id"][0].decode(): (e["landmark_id"][0], e["image_raw"][0])
        for e in readers.examples(dataset, "train")
    }
    assert found == photos
    row_counts = json.loads((dataset / "manifest.json").read_bytes())["input"]
    assert row_counts == {
        **{"rows": 18, "records": 18, "rejected": 0, "duplicates": 0, "unplaced": 0},
        "reasons": {},
        "asides": {UNMATCHED_LABELS: 1},
    }
    keys = set(readers.keys(dataset, "train"))
    assert "paris [fr]/😀/사진 08.JPG" in keys
    _, loaded = readers.loaded(dataset, "train")
    assert {e["id"].decode(): e["landmark_id"] for e in loaded} == {
        id_: landmark for id_, (landmark, _) in photos.items()
    }


def test_records_per_shard_are_exact(folder: Path, tmp_path: Path) -> None:
    """With --records_per_shard 1, each image has its own TFRecord file."""
    one = made(folder, tmp_path / "one", "--num_shards", "1")
    for records, expected in ((1, [1] * 18), (5, [5, 5, 5, 3])):
        dataset = made(folder, tmp_path / str(records), "--records_per_shard", records)
        shards = readers.shards(dataset, "train")
        assert [len(readers.frames(shard.read_bytes())) for shard in shards] == expected
        assert recordmill("verify", dataset).code == 0
        assert readers.records(dataset, "train") == readers.records(one, "train")


def test_a_photo_without_a_landmark_is_a_reject(folder: Path, tmp_path: Path) -> None:
    lost = folder / "train" / "서울" / "unknown.JPG"
    lost.write_bytes(jpeg())
    try:
        dataset = made(folder, tmp_path, "--max_rejects", "1")
    finally:
        lost.unlink()
    (reject,) = readers.rejects(dataset)
    assert (reject["key"], reject["reason"]) == ("서울/unknown.JPG", "unmatched_join")
    assert (reject["uri"], reject["source"]) == (str(lost), str(lost))
    assert len(readers.records(dataset, "train")) == 18
