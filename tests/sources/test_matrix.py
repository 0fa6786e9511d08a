"""Tests of every source with every applicable preset: see docs/reference/sources.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.sources import ANNOTATED, CAPTIONED, SINGLE_LABEL, Shot, shots

PRESETS = {
    "image_classification": "image",
    "tf_slim": "image/encoded",
    "tf_tutorial": "image_raw",
    "landmark": "image_raw",
}
"""The presets with one label per image, and the feature of the image in each."""

FORMS = {**SINGLE_LABEL, **ANNOTATED, **CAPTIONED}
WITH_LISTS = [form for form in SINGLE_LABEL if form not in ("folder", "tar", "tar.gz")]

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
    _, loaded = readers.loaded(dataset, "train")
    assert len(loaded) == len(given)


def test_all_forms_give_the_same_images_byte_for_byte(given: list[Shot], tmp_path: Path) -> None:
    """The keys and their order are the same, so the shards are."""
    digests = {}
    for name in ("parquet structs", "delta", "arrow", "feather", "tar", "tar.gz"):
        form = SINGLE_LABEL[name]
        (tmp_path / name).mkdir()
        dataset = published(form.write(tmp_path / name, given), tmp_path / name / "out")
        digests[name] = readers.shard_bytes(dataset)
    assert all(digest == digests["tar"] for digest in digests.values())
