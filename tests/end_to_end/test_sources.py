"""Every source converts, verifies, and loads in TFDS; tests/sources covers all presets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.functional.sources.tree import NO_IMAGE
from recordmill.transforms.inputs.file_tree import HIDDEN
from tests.end_to_end import readers
from tests.end_to_end.command import Ended, convert, published, recordmill
from tests.end_to_end.sources import ANNOTATED, CAPTIONED, LABELS, SINGLE_LABEL, Shot, shots


@pytest.fixture(scope="module")
def given() -> list[Shot]:
    return shots()


@pytest.fixture(scope="module")
def made() -> Iterator[list[Path]]:
    """Datasets to verify together, with one command, after all are converted."""
    datasets: list[Path] = []
    yield datasets
    ended = recordmill("verify", "--decode", *datasets)
    assert (ended.code, ended.err) == (0, "")
    for dataset in datasets:
        assert not [path for path in dataset.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", SINGLE_LABEL)
def test_every_source_of_labelled_images(
    name: str, given: list[Shot], made: list[Path], tmp_path: Path
) -> None:
    form = SINGLE_LABEL[name]
    dataset = published(form.write(tmp_path, given), tmp_path / "out", *form.flags)
    made.append(dataset)
    found = {e["image"][0]: LABELS[e["label"][0]] for e in readers.examples(dataset, "train")}
    assert found == {shot.data: shot.label for shot in given}
    builder, loaded = readers.loaded(dataset, "train")
    assert builder.info.features["label"].names == sorted(LABELS)
    assert Counter(e["label"] for e in loaded) == {0: 3, 1: 3, 2: 3}
    if name == "folder":
        assert passed_over(dataset) == {HIDDEN: 1, NO_IMAGE: 1}
        names = json.loads((dataset / "run.json").read_bytes())["skipped_names"]
        assert names == {NO_IMAGE: ["notes.txt"], HIDDEN: [".hidden"]}
    elif name != "parquet bytes":  # of which no image has a name
        names = [e["image/filename"][0].decode() for e in readers.examples(dataset, "train")]
        suffix = {"tfrecord": 3, "tfrecord.gz": 3}.get(name)
        assert sorted(names) == sorted(shot.name[:suffix] for shot in given)


def passed_over(dataset: Path) -> dict[str, int]:
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    skipped: dict[str, int] = manifest["input"]["asides"]
    return skipped


BOXES = """
name: boxes
features:
  image: {kind: bytes, from: "image:bytes"}
  xmin: {kind: float, from: "column:xmin", shape: []}
  ymin: {kind: float, from: "column:ymin", shape: []}
  xmax: {kind: float, from: "column:xmax", shape: []}
  ymax: {kind: float, from: "column:ymax", shape: []}
  labels: {kind: int64, from: "column:labels", shape: [], classes: true}
  units: {kind: bytes, from: "column:box_units", missing: empty}
"""


@pytest.mark.parametrize("name", ANNOTATED)
def test_every_source_of_boxes(
    name: str, given: list[Shot], made: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "boxes.yaml").write_text(BOXES)
    form = ANNOTATED[name]
    flags = ("--schema", tmp_path / "boxes.yaml", *form.flags)
    dataset = published(form.write(tmp_path, given), tmp_path / "out", *flags)
    made.append(dataset)
    _, loaded = readers.loaded(dataset, "train")
    assert len(loaded) == len(given)
    for example in readers.examples(dataset, "train"):
        shot = next(s for s in given if s.data == example["image"][0])
        width, height = (shot.width, shot.height) if name == "yolo" else (1, 1)
        assert [LABELS[i] for i in example["labels"]] == [b[0] for b in shot.boxes]
        assert example["units"] == [b"normalized"] * (name == "yolo")
        for at, (corner, side) in enumerate(
            [("xmin", width), ("ymin", height), ("xmax", width), ("ymax", height)], start=1
        ):
            expected = [box[at] / side for box in shot.boxes]
            assert example[corner] == pytest.approx(expected, abs=1e-6)


CAPTIONS = """
name: captions
features:
  image: {kind: bytes, from: "image:bytes"}
  caption: {kind: bytes, from: "column:caption", shape: []}
"""


@pytest.mark.parametrize("name", [*CAPTIONED, "tar", "tfrecord", "arrow"])
def test_every_source_of_captions(name: str, given: list[Shot], tmp_path: Path) -> None:
    (tmp_path / "captions.yaml").write_text(CAPTIONS)
    form = {**CAPTIONED, **SINGLE_LABEL}[name]
    flags = ("--schema", tmp_path / "captions.yaml", *form.flags)
    dataset = published(form.write(tmp_path, given), tmp_path / "out", *flags)
    found = {e["image"][0]: e["caption"] for e in readers.examples(dataset, "train")}
    count = 1 if name == "tar" else None  # a text file is one caption
    assert found == {s.data: [c.encode() for c in s.captions[:count]] for s in given}


def test_a_published_dataset_is_a_source(
    given: list[Shot], made: list[Path], tmp_path: Path
) -> None:
    """Re-shards, re-keys and re-splits; class names come from their file."""
    splits = ("--splits", "train=0.7,test=0.3", "--num_shards", "3")
    first = published(_written("folder", tmp_path, given), tmp_path / "out", *splits)
    flags = (
        *("--classes", first / "label.labels.txt", "--key_column", "image/filename"),
        *("--split_column", "split", "--num_shards", "1"),
    )
    second = published(first / "*.tfrecord*", tmp_path / "again", *flags)
    made.append(second)
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
