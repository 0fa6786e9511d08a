"""Similar images and images of low quality in summary, manifest, report and records/."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.end_to_end.command import recordmill
from tests.end_to_end.tables import write_table


def landscape(seed: int) -> Image.Image:
    """Returns an image with structure of all sizes, as photographs have: smoothed noise."""
    small = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((320, 240), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format_: str = "JPEG", **options: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


# (name, split, label, file): 0 to 5 have nothing in common, except for those derived from 0 and 1.
IMAGES = [
    *((f"{i}.jpg", "train", "cat", encoded(landscape(i), quality=90)) for i in range(6)),
    ("0-q40.jpg", "test", "cat", encoded(landscape(0), quality=40)),
    ("0-half.jpg", "test", "cat", encoded(landscape(0).resize((160, 120)))),
    ("1.png", "train", "dog", encoded(landscape(1), "PNG")),
    ("1-crop.jpg", "train", "cat", encoded(landscape(1).crop((2, 2, 319, 238)))),
    ("black.png", "train", "cat", encoded(Image.new("RGB", (320, 240)), "PNG")),
    ("tiny.jpg", "test", "dog", encoded(landscape(9).resize((30, 24)))),
]


def write_images(folder: Path) -> tuple[str, ...]:
    folder.mkdir()
    for name, _, _, data in IMAGES:
        (folder / name).write_bytes(data)
    rows = [{"image": name, "label": label, "split": split} for name, split, label, _ in IMAGES]
    table = write_table(folder / "labels.csv", rows)
    return ("--input", str(table), "--output", str(folder / "out"), "--name", "similar")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A dataset with similar images in both splits, and the output of its run."""
    folder = tmp_path_factory.mktemp("findings") / "images"
    run = recordmill("convert", *write_images(folder), "--split_column", "split")
    assert run.code == 0, run.err
    return folder / "out" / "similar" / "1.0.0", run.err + run.out


def manifest_of(dataset: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dataset / "manifest.json").read_bytes())
    return document


def test_the_manifest_has_the_groups(converted: tuple[Path, str]) -> None:
    near = manifest_of(converted[0])["near_duplicates"]
    examples = near.pop("examples")
    assert near == {
        "compared": 10,  # all but the black image and the tiny one
        "groups": 2,
        "records": 6,
        "duplicates": {"test": 1, "train": 2},
        "leaks": [
            {
                **{"splits": ["test", "train"], "images": 1, "records": 3},
                "examples": [["0-half.jpg", "0.jpg"]],
            }
        ],
        "conflicts": {"images": 1, "records": 3, "examples": [["1-crop.jpg", "1.png"]]},
        "full_buckets": 0,
        "overflow": False,
    }
    shown = [{record["key"] for record in group["examples"]} for group in examples]
    assert shown == [{"0.jpg", "0-half.jpg", "0-q40.jpg"}, {"1.jpg", "1.png", "1-crop.jpg"}]


def test_the_manifest_has_the_quality(converted: tuple[Path, str]) -> None:
    quality = manifest_of(converted[0])["quality"]
    images = {name: issue["images"] for name, issue in quality["issues"].items()}
    assert quality["measured"] == len(IMAGES)
    assert images == {
        **{"blank": {"train": 1}, "dark": {"train": 1}, "low_information": {"train": 1}},
        "tiny": {"test": 1},
    }


@pytest.mark.parametrize(
    "line",
    [
        "warning: test and train share 1 group of similar images (0-half.jpg ~ 0.jpg)",
        "warning: 1 group of similar images has more than one label (1-crop.jpg ~ 1.png)",
        "note: 2 records of train repeat in similar form the image of another record of train",
        "note: 1 image is blank (black.png)",
        "note: 1 image is tiny (tiny.jpg)",
    ],
)
def test_the_summary_has_notes(converted: tuple[Path, str], line: str) -> None:
    assert line in converted[1]


def test_the_report_shows_the_images(converted: tuple[Path, str]) -> None:
    page = (converted[0] / "report.html").read_text("utf-8")
    similar = page.split("<h3>Similar images</h3>")[1].split('<section id="shards"')[0]
    groups, quality = similar.split('<section id="quality"')
    assert (groups.count("data:image/jpeg"), quality.count("data:image/jpeg")) == (6, 4)
    assert "in several splits" in groups
    assert "conflicting labels" in groups
    assert '1 image <span class="tag">side below 32</span>' in quality
    assert '1 image <span class="tag">luma_p99 below 81.6</span>' in quality


def test_records_have_the_measures(converted: tuple[Path, str]) -> None:
    files = sorted((converted[0] / "records").iterdir())
    rows = {row["key"]: row for file in files for row in pq.read_table(file).to_pylist()}
    assert (rows["black.png"]["luma_p99"], rows["black.png"]["phash"]) == (0, None)
    assert (rows["0-half.jpg"]["width"], rows["0-half.jpg"]["height"]) == (160, 120)
    hashes = {key: int(rows[key]["phash"], 16) for key in ("0.jpg", "0-q40.jpg", "2.jpg")}
    assert (hashes["0.jpg"] ^ hashes["0-q40.jpg"]).bit_count() <= 10
    assert (hashes["0.jpg"] ^ hashes["2.jpg"]).bit_count() > 80


def test_images_of_low_quality_are_rejected(tmp_path: Path) -> None:
    command = (*write_images(tmp_path / "images"), "--split_column", "split")
    command += ("--reject_quality", "blank,tiny", "--max_rejects", "2")
    planned = recordmill("convert", *command, "--dry_run", "--json")
    run = recordmill("convert", *command)
    assert run.code == 0, run.err
    dataset = tmp_path / "images" / "out" / "similar" / "1.0.0"
    (file,) = (dataset / "rejects").iterdir()
    lines = file.read_text("utf-8").splitlines()
    rejects = {reject["key"]: reject for reject in map(json.loads, lines)}
    assert {reject["reason"] for reject in rejects.values()} == {"low_quality"}
    assert {key: reject["detail"] for key, reject in rejects.items()} == {
        "black.png": "blank: expected luma_std of at least 4, got 0",
        "tiny.jpg": "tiny: expected side of at least 32, got 24",
    }
    tried = {
        reject["key"]: reject["detail"] for reject in json.loads(planned.out)["tried"]["rejected"]
    }
    assert tried == {key: reject["detail"] for key, reject in rejects.items()}
    assert manifest_of(dataset)["quality"]["issues"] == {}
