"""The examples of docs/how-to/beam.md run."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

import recordmill
from tests.docs.pages import DOCS, blocks
from tests.images import jpeg

BUILD_EXAMPLES, CHAIN, WRITE_DATASET = blocks(DOCS / "how-to" / "beam.md", "python")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    for name in "ab":
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(jpeg(40, 30, seed=ord(name)))
    monkeypatch.chdir(tmp_path)


def run(example: str) -> None:
    exec(compile(example, "beam.md", "exec"), {})  # noqa: S102 - as readers do


def test_build_examples_writes_examples_that_tensorflow_reads(tmp_path: Path) -> None:
    run(BUILD_EXAMPLES)
    (record,) = tf.data.TFRecordDataset(sorted(map(str, tmp_path.glob("examples-*-of-00004"))))
    features = tf.train.Example.FromString(record.numpy()).features.feature
    numbers = {n: f.int64_list.value[0] for n, f in features.items() if n != "image_raw"}
    assert numbers == {"height": 30, "width": 40, "depth": 3, "label": 7}
    assert features["image_raw"].bytes_list.value[0] == jpeg(40, 30, seed=ord("a"))


def test_the_chain_prints_each_file_with_its_records(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(CHAIN)
    printed = capfd.readouterr().out.splitlines()
    assert len(printed) == 4
    assert sum(line.endswith(", 1)") for line in printed) == 1
    assert [path.read_text() for path in tmp_path.glob("rejects*")] == [""]


def test_write_dataset_publishes() -> None:
    run(WRITE_DATASET)
    dataset = recordmill.open("datasets/pets/1.0.0")
    assert dataset.splits["train"].records == 2
    assert sorted(dataset.records.keys()) == ["photos/a.jpg", "photos/b.jpg"]
