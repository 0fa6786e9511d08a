"""The examples of docs/how-to/read.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf

from tests.end_to_end.command import ROOT, published
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

PAGE = (ROOT / "docs/how-to/read.md").read_text(encoding="utf-8")


def test_the_examples_run(
    images: list[Photo], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"image": p.path, "label": p.label} for p in images]
    published(write_table(folder / "page.csv", rows), tmp_path / "datasets", "--index")
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for block in blocks:
        if "torch" not in block:  # tests/torch has it
            exec(compile(block, "docs/how-to/read.md", "exec"), found)  # noqa: S102 - as readers do
    assert len(blocks) == 7
    train, rest = found["train"], found["rest"]
    assert sum(len(labels) for _, labels in [*train, *rest]) == 12
    assert isinstance(train, tf.data.Dataset)
    assert found["names"] == ("cat", "horse", "Übermut")
    assert found["record"].keys() == found["same"].keys()
    assert len(found["some"]) == 2
    assert found["images"].shape == (4, 224, 224, 3)
    assert len(list(found["dataset"])) == 12
    assert len(list(found["pairs"])) == 12
    assert len(found["shards"]) == 1
    assert all(Path(index).exists() for index in found["indexes"])
