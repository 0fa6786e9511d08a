"""The programs in examples/ work."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from examples import beam_pipeline, convert_and_train
from tests.images import jpeg


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of images with a sub-folder per class; one file is not an image."""
    for number in range(12):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(80, 60, seed=number) if number else b"no image")
    return tmp_path


def test_a_folder_is_converted_and_trained_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 < convert_and_train.main(str(folder / "photos"), str(folder / "datasets")) < 100
    reject, record = capsys.readouterr().out.splitlines()
    assert reject.startswith(f"{folder}/photos/cat/00.jpg not_an_image ")
    assert record.endswith("image (60, 80, 3)")


def test_a_custom_pipeline_writes_examples_and_rejects(folder: Path) -> None:
    paths = sorted(path.relative_to(folder) for path in folder.glob("photos/*/*.jpg"))
    table = {"file": [str(path) for path in paths], "label": [path.parts[1] for path in paths]}
    pq.write_table(pa.table(table), folder / "labels.parquet")
    beam_pipeline.main(str(folder / "labels.parquet"), str(folder), str(folder / "out"))
    shards = sorted(map(str, folder.glob("out-*.tfrecord")))
    assert len(shards) == 2
    features = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(shards)
    ]
    found = {
        one["image/filename"].bytes_list.value[0].decode(): (
            one["image/class/text"].bytes_list.value[0].decode(),
            one["image/class/label"].int64_list.value[0],
        )
        for one in features
    }
    assert found == {str(p): (p.parts[1], ("cat", "dog").index(p.parts[1])) for p in paths[1:]}
    (rejects,) = folder.glob("out-*.rejects")
    (reject,) = map(ast.literal_eval, rejects.read_text().splitlines())
    assert (reject["key"], reject["reason"]) == ("photos/cat/00.jpg", "not_an_image")
