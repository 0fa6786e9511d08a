"""`--near_duplicates`: similar images are kept in one split, dropped, or not compared."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.command import recordmill
from tests.end_to_end.tables import write_table
from tests.end_to_end.test_image_findings import encoded, landscape

SPLITS = ("--splits", "train=0.75,test=0.25")

# Twelve images, each also with half its size and with a low quality.
NAMES = [f"{i:02}{kind}.jpg" for i in range(12) for kind in ("", "-half", "-q40")]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table_of_similar_images(tmp_path_factory.mktemp("similar"))


def table_of_similar_images(folder: Path) -> Path:
    """Writes a table of similar images; places connect the images 0 and 1, 2 and 3, and so on."""
    for i in range(12):
        image = landscape(i)
        (folder / f"{i:02}.jpg").write_bytes(encoded(image))
        (folder / f"{i:02}-half.jpg").write_bytes(encoded(image.resize((160, 120))))
        (folder / f"{i:02}-q40.jpg").write_bytes(encoded(image, quality=40))
    rows = [
        {"image": name, "label": "cat", "place": str(n // 6) if "-" not in name else name}
        for n, name in enumerate(NAMES)
    ]
    return write_table(folder / "labels.csv", rows)


def convert(table: Path, output: Path, mode: str, *flags: str) -> tuple[dict[str, Any], Path, str]:
    """Returns the manifest and the folder of a dataset, and what its run has printed."""
    command = ("--input", str(table), "--output", str(output), "--name", "similar", *flags)
    run = recordmill("convert", *command, "--near_duplicates", mode)
    assert run.code == 0, run.err
    dataset = output / "similar" / "1.0.0"
    return json.loads((dataset / "manifest.json").read_bytes()), dataset, run.err + run.out


def splits_of(dataset: Path) -> dict[str, str]:
    files = sorted((dataset / "records").iterdir())
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return {row["key"]: row["split"] for row in rows}


@pytest.mark.parametrize(
    "flags",
    [
        ("--group_column", "place"),
        ("--split_method", "exact", "--sample", "100%", "--seed", "1"),
    ],
)
def test_similar_images_are_kept_together(
    table: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    manifest, dataset, _ = convert(table, tmp_path, "keep_together", *SPLITS, *flags)
    assert (manifest["near_duplicates"]["groups"], manifest["near_duplicates"]["leaks"]) == (12, [])
    found = splits_of(dataset)
    size = 6 if "place" in flags else 3  # similar images connect the groups
    for start in range(0, len(NAMES), size):
        assert len({found[name] for name in NAMES[start : start + size]}) == 1
    assert set(found.values()) == {"train", "test"}
    if "exact" in flags:
        assert Counter(found.values()) == {"train": 27, "test": 9}


def test_one_of_similar_images_is_kept(table: Path, tmp_path: Path) -> None:
    manifest, dataset, _ = convert(table, tmp_path, "drop")
    assert sorted(splits_of(dataset)) == [f"{i:02}-half.jpg" for i in range(12)]
    assert (manifest["input"]["records"], manifest["input"]["duplicates"]) == (12, 24)
    (file,) = (dataset / "dropped").iterdir()
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert {(line["key"], line["repeats"]) for line in lines} >= {("07.jpg", "07-half.jpg")}
    assert {line["reason"] for line in lines} == {"near_duplicate"}
    run = recordmill("verify", str(dataset))
    assert run.code == 0, run.err


def test_images_are_not_compared(table: Path, tmp_path: Path) -> None:
    manifest, dataset, _ = convert(table, tmp_path, "none")
    assert "near_duplicates" not in manifest
    files = sorted((dataset / "records").iterdir())
    hashes = {row["phash"] for file in files for row in pq.read_table(file).to_pylist()}
    assert hashes == {None}
    assert manifest["quality"]["measured"] == len(NAMES)


def test_a_cluster_follows_the_base_version(table: Path, tmp_path: Path) -> None:
    lines = table.read_text("utf-8").splitlines(keepends=True)
    first = table.with_name("first.csv")
    first.write_text("".join(line for line in lines if "-" not in line.split(",")[0]), "utf-8")
    _, base, _ = convert(first, tmp_path, "report", *SPLITS)
    flags = (*SPLITS, "--base", str(base), "--version", "1.1.0")
    convert_flags = ("--input", str(table), "--output", str(tmp_path), "--name", "similar", *flags)
    run = recordmill("convert", *convert_flags, "--near_duplicates", "keep_together")
    assert run.code == 0, run.err
    found = splits_of(tmp_path / "similar" / "1.1.0")
    for key, split in splits_of(base).items():
        name = key.removesuffix(".jpg")
        assert [found[n] for n in (key, f"{name}-half.jpg", f"{name}-q40.jpg")] == [split] * 3
