"""Nested lists of fixed shape, of variable first dimension, and ragged, in all readers."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.tables import write_table

SCHEMA = """
features:
  matrix: {kind: float, from: "column:matrix", shape: [2, 3]}
  names: {kind: bytes, from: "column:names", shape: [2, 2]}
  pairs: {kind: int64, from: "column:pairs", shape: [null, 2]}
  words/ragged_flat_values: {kind: bytes, from: "flat:words", shape: []}
  words/ragged_row_lengths_0: {kind: int64, from: "row_lengths:words", shape: []}
"""
ROWS = [
    {
        "id": "one",
        "matrix": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]],
        "names": [["a", "b"], ["c", "ü"]],
        "pairs": [[1, 2], [3, 4], [5, 6]],
        "words": [["a", "b"], [], ["c"]],
    },
    {
        "id": "two",
        "matrix": [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        "names": [["", ""], ["", ""]],
        "pairs": [],
        "words": [],
    },
]
NAMES = [[[name.encode() for name in two] for two in row["names"]] for row in ROWS]
WORDS = [[[word.encode() for word in words] for words in row["words"]] for row in ROWS]


@pytest.fixture(scope="module", params=["jsonl", "parquet"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nested")
    (folder / "s.yaml").write_text(SCHEMA)
    table = write_table(folder / f"t.{request.param}", ROWS)
    return published(table, folder / "out", "--schema", folder / "s.yaml", "--key_column", "id")


def rows_of(dataset: Path) -> list[int]:
    return [["one", "two"].index(key) for key in readers.keys(dataset, "train")]


def test_tensorflow_parses_them_by_the_spec_that_schema_prints(dataset: Path) -> None:
    printed = recordmill("schema", dataset.parents[2] / "s.yaml").out
    code = printed[printed.index("spec = {") : printed.index("tf.io.parse_single")]
    scope: dict[str, object] = {"tf": tf}
    exec(code, scope)  # noqa: S102 - what a user would paste
    for record, i in zip(readers.records(dataset, "train"), rows_of(dataset), strict=True):
        parsed = tf.io.parse_single_example(record, scope["spec"])
        assert parsed["matrix"].numpy().tolist() == ROWS[i]["matrix"]
        assert parsed["names"].numpy().tolist() == NAMES[i]
        assert parsed["pairs"].numpy().tolist() == ROWS[i]["pairs"]
        assert parsed["pairs"].shape == (len(ROWS[i]["pairs"]), 2)


def test_tensorflow_datasets_knows_their_shapes(dataset: Path) -> None:
    _, examples = readers.loaded(dataset, "train")
    for example, i in zip(examples, rows_of(dataset), strict=True):
        assert example["matrix"].tolist() == ROWS[i]["matrix"]
        assert example["names"].tolist() == NAMES[i]
        assert example["pairs"].tolist() == ROWS[i]["pairs"]
        assert example["words"].to_list() == WORDS[i]


def test_load_and_records_know_their_shapes(dataset: Path) -> None:
    for ours, read, i in zip(load(dataset), Records(dataset), rows_of(dataset), strict=True):
        assert ours["matrix"].numpy().tolist() == read["matrix"].tolist() == ROWS[i]["matrix"]
        assert ours["names"].numpy().tolist() == read["names"] == NAMES[i]
        assert ours["pairs"].numpy().tolist() == read["pairs"].tolist() == ROWS[i]["pairs"]
        assert read["pairs"].shape == (len(ROWS[i]["pairs"]), 2)
    (batch,) = load(dataset, batch_size=2)
    assert batch["pairs"].to_list() == [ROWS[i]["pairs"] for i in rows_of(dataset)]
    assert batch["matrix"].shape == (2, 2, 3)


def test_a_record_that_does_not_fill_its_shape_is_reported(dataset: Path) -> None:
    (record, *_) = readers.records(dataset, "train")
    example = tf.train.Example.FromString(record)
    example.features.feature["matrix"].float_list.value.append(7.0)
    file = dataset.parents[2] / "bad.tfrecord"
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(example.SerializeToString())
    ended = recordmill("verify", file, "--schema", dataset.parents[2] / "s.yaml")
    assert ended.code == 3
    assert "record 0 at byte 0" in ended.err
