"""Rows without a label have the class -1: in all readers, counts and increments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recordmill
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.end_to_end.command import recordmill as run
from tests.images import jpeg

SCHEMA = """
features:
  image: {kind: bytes, from: "image:bytes"}
  image/filename: {kind: bytes, from: key}
  label: {kind: int64, from: "column:label", classes: true, default: -1}
"""


def table(folder: Path, name: str, labels: list[str]) -> Path:
    rows = ["image,label,split"]
    for i, label in enumerate(labels):
        image = f"{name}{i}.jpg"
        (folder / image).write_bytes(jpeg(seed=len(name) * 100 + i))
        rows.append(f"{image},{label},{'train' if label in ('cat', 'dog') else 'test'}")
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder / f"{name}.csv"


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return ("--schema", f"{tmp_path}/schema.yaml", "--split_column", "split")


def test_rows_without_a_label_have_the_class_minus_1(tmp_path: Path, options: tuple) -> None:
    first = table(tmp_path, "a", ["cat", "dog", "", "-1", "cat"])
    dataset = published(first, tmp_path / "out", *options)
    found = readers.examples(dataset, "test")
    assert [record["label"] for record in found] == [[-1], [-1]]
    assert (dataset / "label.labels.txt").read_text().split() == ["cat", "dog"]
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    assert manifest["splits"]["test"]["classes"] == {"label": {}}
    assert manifest["splits"]["train"]["classes"] == {"label": {"0": 2, "1": 1}}

    opened = recordmill.open(dataset)
    kinds = {finding.kind for finding in opened.findings}
    assert "unlabeled_split" in kinds
    assert "missing_classes" not in kinds
    assert [item["label"] for item in recordmill.Records(dataset, "test")] == [-1, -1]
    assert opened.class_weights("train") == {0: 0.75, 1: 1.5}
    (batch,) = recordmill.load(dataset, "test", batch_size=2, image_size=8, as_supervised=True)
    assert batch[1].numpy().tolist() == [-1, -1]  # dense
    assert run("verify", dataset).code == 0

    second = table(tmp_path, "bb", ["dog", ""])
    base = ("--base", dataset, "--append", "--version", "1.1.0")
    ended = convert(second, tmp_path / "out", *options, *base)
    assert ended.code == 0, ended.err
    increment = dataset.parent / "1.1.0"
    manifest = json.loads((increment / "manifest.json").read_bytes())
    assert manifest["splits"]["train"]["classes"] == {"label": {"0": 2, "1": 2}}
    assert manifest["splits"]["test"]["records"] == 3
    assert manifest["splits"]["test"]["classes"] == {"label": {}}


def test_minus_1_without_that_default_is_rejected_with_what_to_do(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\n")
    first = table(tmp_path, "a", ["cat", "-1"])
    ended = convert(first, tmp_path / "out", "--classes", names, "--split_column", "split")
    assert ended.code != 0
    assert "-1 usually means that a row has no label: declare default: -1" in ended.err
