"""Datasets that Hugging Face Datasets wrote, converted with their path and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.runs.environments import ROOT, environment, run
from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.images import jpeg


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with exports of one dataset, and what the tool reads from it."""
    folder = tmp_path_factory.mktemp("exports")
    for i in range(24):  # class names that are numbers, and whose ids are others
        split = ("train", "train", "validation")[i % 3]
        path = folder / "pets" / split / str(8 + i % 4) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(8, 6, i))
        labeled = folder / "labeled" / split
        (labeled / "images").mkdir(parents=True, exist_ok=True)
        (labeled / "images" / path.name).write_bytes(path.read_bytes())
        with (labeled / "metadata.jsonl").open("a") as table:
            table.write(f'{{"file_name": "images/{i}.jpg", "label": {i % 5}}}\n')
    venv = environment("hugging-face", ["datasets==5.2.0", "pillow"], ROOT / "constraints.txt")
    script = Path(__file__).parent / "hugging_face_export.py"
    variables = {**os.environ, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    return folder, json.loads(run(venv / "bin" / "python", script, folder, env=variables))


@pytest.mark.parametrize("name", ["pets", "saved", "hub"])
def test_ids_and_splits_are_those_that_the_tool_reports(
    name: str, exported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = exported
    dataset = published(folder / name, tmp_path)
    manifest = json.loads((dataset / "manifest.json").read_text())
    assert manifest["classes"]["label"] == expected["names"] == ["10", "11", "8", "9"]
    assert set(manifest["splits"]) == set(expected["rows"]) == {"train", "validation"}
    assert rows_of(dataset) == expected["rows"]


def test_metadata_files_state_labels_and_splits(
    exported: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = exported
    assert rows_of(published(folder / "labeled", tmp_path)) == expected["labeled"]


def rows_of(dataset: Path) -> dict[str, list[Any]]:
    """Returns the digest of each image and its label, by split."""
    return {
        split: sorted(
            [hashlib.sha256(example["image"][0]).hexdigest(), example["label"][0]]
            for example in readers.examples(dataset, split)
        )
        for split in json.loads((dataset / "manifest.json").read_text())["splits"]
    }
