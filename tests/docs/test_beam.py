"""The examples of docs/how-to/beam.md run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import recordmill
from tests.beam_yaml import run_yaml
from tests.docs.pages import DOCS, blocks
from tests.images import jpeg

PAGE = DOCS / "how-to" / "beam.md"
CHAIN, BUILD_EXAMPLES, WRITE_DATASET, CROPS, MODEL, DECODER, BIG_QUERY = blocks(PAGE, "python")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    for name in "ab":
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(jpeg(40, 30, seed=ord(name)))
    (tmp_path / "labels.csv").write_text("image,label\nphotos/a.jpg,7\nphotos/b.jpg,3\nc.jpg,1\n")
    monkeypatch.chdir(tmp_path)


def run(example: str) -> None:
    exec(compile(example, "beam.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - as readers do


def features(pattern: str) -> list[dict[str, Any]]:
    """Returns the first value of each feature of all records, as TensorFlow reads them."""
    files = sorted(map(str, Path().glob(pattern)))
    read = tf.data.TFRecordDataset(files).as_numpy_iterator()
    found = [tf.train.Example.FromString(record).features.feature for record in read]
    return [{name: _first(feature) for name, feature in one.items()} for one in found]


def _first(feature: Any) -> Any:
    return getattr(feature, feature.WhichOneof("kind")).value[0]


def test_build_examples_writes_examples_that_tensorflow_reads(tmp_path: Path) -> None:
    run(BUILD_EXAMPLES)
    (found,) = features("examples-*-of-00004")
    image = found.pop("image_raw")
    assert (found, image) == (
        {"height": 30, "width": 40, "depth": 3, "label": 7},
        jpeg(40, 30, seed=ord("a")),
    )


def test_the_chain_prints_each_file_with_its_records(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(CHAIN)
    printed = capfd.readouterr().out.splitlines()
    assert len(printed) == 4
    assert sum(int(line[:-1].rpartition(", ")[2]) for line in printed) == 2
    assert sorted(found["label"] for found in features("verified-*")) == [3, 7]
    (reject,) = (path.read_text() for path in tmp_path.glob("rejects*"))
    assert f"'source': '{tmp_path}/labels.csv:4', 'reason': 'missing_file'" in reject


def test_crops_are_records_with_keys_of_their_own(tmp_path: Path) -> None:
    boxes = {"boxes": [[0, 0, 10, 20], [5, 5, 35, 25]], "labels": ["dog", "cat"]}
    (tmp_path / "boxes.jsonl").write_text(json.dumps({"image": "photos/a.jpg", **boxes}))
    run(CROPS)
    found = features("crops-*")
    sizes = {one["label"]: tf.io.decode_image(one["image"]).shape[:2] for one in found}
    assert sizes == {1: (20, 10), 0: (20, 30)}


def test_the_value_of_a_model_is_a_feature(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,label\nphotos/a.jpg,7\nphotos/b.jpg,3\n")
    run(MODEL)
    found = {one["label"]: one["score"] for one in features("scored-*")}
    photos = [Image.open(tmp_path / "photos" / f"{name}.jpg").convert("L") for name in "ab"]
    means = [np.mean(np.asarray(photo)) for photo in photos]
    assert found == pytest.approx({7: means[0], 3: means[1]})


def test_what_a_decoder_returns_keeps_its_values(tmp_path: Path) -> None:
    scan = np.arange(6, dtype=np.uint16).reshape(2, 3) * 9_000
    np.save(tmp_path / "scan.npy", scan)
    run(DECODER)
    (found,) = features("scans-*")
    image = tf.io.decode_png(found["image_raw"], dtype=tf.uint16).numpy()
    assert np.array_equal(image[..., 0], scan)


def test_rows_of_bigquery_become_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"uri": "photos/a.jpg", "species": "ibis"}, {"uri": "photos/b.jpg", "species": "owl"}]
    monkeypatch.setattr(beam.io, "ReadFromBigQuery", lambda **_: beam.Create(rows), raising=False)
    run(BIG_QUERY)
    assert recordmill.open("datasets/zoo/1.0.0").classes["label"] == ("ibis", "owl")


def test_the_pipeline_in_yaml_has_the_records_and_rejects_of_the_chain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = run_yaml(caplog, "--runner=FnApiRunner")
    assert sorted(found["label"] for found in features("from_yaml-*")) == [3, 7]
    assert written.verified == 2
    missing = f"{tmp_path}/c.jpg: No such file or directory"
    assert written.rejects == [f"{tmp_path}/labels.csv:4: missing_file: {missing}"]


def test_write_dataset_publishes() -> None:
    run(WRITE_DATASET)
    dataset = recordmill.open("datasets/pets/1.0.0")
    assert dataset.splits["train"].records == 2
    assert sorted(dataset.records.keys()) == ["photos/a.jpg", "photos/b.jpg"]
