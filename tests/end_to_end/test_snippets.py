"""The code that `recordmill schema DIR` prints runs, with each library; tests/torch has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.commands.schema import _snippets
from recordmill.schemas.yaml_files import parse_schema, preset, preset_names
from recordmill.transforms.storage.dataset import DatasetFolder
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table
from tests.unit.transforms.storage.test_dataset import put

LIBRARIES = ["recordmill.load", "tf.data", "PyTorch", "Grain", "TFDS"]


def run(code: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(code, found)  # noqa: S102 - as readers do
    return found


@pytest.fixture(scope="module")
def dataset(images: list[Photo], folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    output = tmp_path_factory.mktemp('it\'s a "folder"')
    return published(write_table(folder / "snippets.csv", rows), output)


def labels(examples: Iterable[Any]) -> list[int]:
    """Returns the labels of dicts, pairs, or batches of pairs, sorted."""
    found = [e["label"] if isinstance(e, dict) else e[1] for e in examples]
    return sorted(int(label) for labels in found for label in getattr(labels, "flat", [labels]))


def test_the_code_of_each_library_reads_every_record(dataset: Path, images: list[Photo]) -> None:
    ended = recordmill("schema", dataset.parent, "--json")
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    names = sorted({photo.label for photo in images})
    assert (document["splits"], document["classes"]) == ({"train": 12}, {"label": names})
    assert document["directory"] == str(dataset)
    schema = DatasetFolder.open(dataset).manifest.dataset_schema
    assert parse_schema(document["yaml"], "schema.yaml") == schema
    code = document["snippets"]
    assert sorted(code) == sorted(LIBRARIES)
    expected = sorted(names.index(photo.label) for photo in images)
    loaded = run(code["recordmill.load"])
    assert labels(loaded["examples"].as_numpy_iterator()) == expected
    assert loaded["names"] == tuple(names)
    assert labels(run(code["tf.data"])["examples"].as_numpy_iterator()) == expected
    assert labels(run(code["TFDS"])["examples"].as_numpy_iterator()) == expected
    assert labels(run(code["Grain"])["examples"]) == expected


def test_the_command_prints_features_classes_and_code(dataset: Path) -> None:
    ended = recordmill("schema", dataset)
    assert (ended.code, ended.err) == (0, "")
    assert "train 12 records; schema image_classification" in ended.out
    assert "Classes of label: 0 cat, 1 horse, 2 Übermut\n" in ended.out
    for name, code in _snippets(DatasetFolder.open(dataset)).items():
        lines = [line.rstrip() for line in ended.out.splitlines()]
        assert "\n".join([f"# {name}", "", *code.split("\n")]) in "\n".join(lines)


def test_gzipped_tables_are_read_in_order(folder: Path, tmp_path: Path) -> None:
    table = write_table(folder / "numbers.jsonl", [{"x": n, "y": [0.5] * n} for n in range(5)])
    flags = ("--schema", "tabular", "--key_column", "x", "--compression", "gzip")
    code = _snippets(DatasetFolder.open(published(table, tmp_path, *flags)))
    assert list(code) == ["recordmill.load", "tf.data"]
    examples = run(code["tf.data"])["examples"].as_numpy_iterator()
    assert sorted(example["x"] for example in examples) == list(range(5))
    (batch,) = run(code["recordmill.load"])["examples"]
    assert sorted(batch["x"].numpy()) == list(range(5))


@pytest.mark.parametrize("name", [name for name in preset_names() if preset(name).features])
def test_the_code_of_every_preset_compiles(name: str, tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    manifest = dataset.manifest.model_copy(update={"dataset_schema": preset(name)})
    found = _snippets(DatasetFolder(dataset.directory, manifest))
    for library, code in found.items():
        compile(code, library, "exec")
    assert ("TFDS" in found) == (preset(name).sequence is None)


def test_a_folder_that_is_not_a_dataset_is_reported(tmp_path: Path) -> None:
    ended = recordmill("schema", tmp_path)
    assert ended.code == 2
    assert "not a published dataset: it has no _SUCCESS" in ended.err
