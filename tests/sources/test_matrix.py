"""Tests of every source with every applicable preset: see docs/reference/sources.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.functional.sources.tree import NO_IMAGE
from recordmill.transforms.inputs.file_tree import HIDDEN
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.sources import ANNOTATED, CAPTIONED, SINGLE_LABEL
from tests.shots import LABELS, Shot, shots

PRESETS = {
    "image_classification": "image",
    "tf_slim": "image/encoded",
    "tf_tutorial": "image_raw",
    "landmark": "image_raw",
}
"""The presets with one label per image, and the feature of the image in each."""

FORMS = {**SINGLE_LABEL, **ANNOTATED, **CAPTIONED}
WITH_LISTS = [
    name
    for name, form in SINGLE_LABEL.items()
    if form.holds != "label" and name not in ("folder", "tar", "tar.gz")
]

PAIRS = [(form, preset) for form in SINGLE_LABEL for preset in PRESETS]
PAIRS += [(form, "multi_label") for form in (*WITH_LISTS, "tar", "tar.gz", *ANNOTATED)]
PAIRS += [(form, "object_detection") for form in ANNOTATED]
PAIRS += [(form, "captioning") for form in (*WITH_LISTS, "tar", "tar.gz", *CAPTIONED)]


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


@pytest.mark.parametrize(("name", "preset"), PAIRS)
def test_a_pair_converts_is_verified_and_loads(
    name: str, preset: str, given: list[Shot], made: list[Path], tmp_path: Path
) -> None:
    form = FORMS[name]
    flags = ("--schema", preset, *form.flags)
    dataset = published(form.write(tmp_path, given), tmp_path / "out", *flags)
    made.append(dataset)
    image = PRESETS.get(preset, "image" if preset == "multi_label" else "image/encoded")
    images = [example[image][0] for example in readers.examples(dataset, "train")]
    assert sorted(images) == sorted(shot.data for shot in given)
    builder, loaded = readers.loaded(dataset, "train")
    assert len(loaded) == len(given)
    if preset == "image_classification":
        assert_labels_and_names(dataset, name, given)
        assert builder.info.features["label"].names == sorted(LABELS)
        assert Counter(e["label"] for e in loaded) == {0: 3, 1: 3, 2: 3}


def assert_labels_and_names(dataset: Path, name: str, given: list[Shot]) -> None:
    examples = readers.examples(dataset, "train")
    found = {e["image"][0]: LABELS[e["label"][0]] for e in examples}
    assert found == {shot.data: shot.label for shot in given}
    if name == "folder":
        assert passed_over(dataset) == {HIDDEN: 1, NO_IMAGE: 1}
        names = json.loads((dataset / "run.json").read_bytes())["skipped_names"]
        assert names == {NO_IMAGE: ["notes.txt"], HIDDEN: [".hidden"]}
    elif name != "parquet bytes":  # of which no image has a name
        names = [e["image/filename"][0].decode() for e in examples]
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
        width, height = (shot.width, shot.height) if form.in_fractions else (1, 1)
        assert [LABELS[i] for i in example["labels"]] == [b[0] for b in shot.boxes]
        assert example["units"] == [b"normalized"] * form.in_fractions
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


def test_all_forms_give_the_same_images_byte_for_byte(given: list[Shot], tmp_path: Path) -> None:
    """The keys and their order are the same, so the shards are."""
    digests = {}
    for name in ("parquet structs", "delta", "arrow", "feather", "tar", "tar.gz"):
        form = SINGLE_LABEL[name]
        (tmp_path / name).mkdir()
        dataset = published(form.write(tmp_path / name, given), tmp_path / name / "out")
        digests[name] = readers.shard_bytes(dataset)
    assert all(digest == digests["tar"] for digest in digests.values())
