"""Class weights, against values computed by scikit-learn 1.9."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from recordmill.pipelines.dataset.records import _balanced_weights, _class_ids, class_weights
from recordmill.schemas.errors import UsageError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder
from tests.unit.transforms.storage.test_dataset import put


@pytest.mark.parametrize(
    ("ids", "weights"),
    [  # compute_class_weight("balanced", classes=np.unique(ids), y=ids)
        ([0, 0, 0, 1], {0: 2 / 3, 1: 2.0}),
        ([7, 3, 7, 7, 7, 3, 9, 7], {3: 4 / 3, 7: 0.5333333333333333, 9: 8 / 3}),
        ([2], {2: 1.0}),
        ([], {}),
        ([-1, 0, 1, 1, -1], {0: 1.5, 1: 0.75}),  # records without a label do not count
    ],
)
def test_weights_are_those_of_scikit_learn(ids: list[int], weights: dict[int, float]) -> None:
    assert _balanced_weights(np.array(ids, np.int64)) == weights


def test_ids_are_read_from_the_index(tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    (tmp_path / "birds-train.tfrecord-00000-of-00002").unlink()
    assert _class_ids(dataset, dataset.select("train")).tolist() == [0, 1, 0]
    assert _class_ids(dataset, dataset.select("train[1:2]")).tolist() == [1]
    assert _class_ids(dataset, dataset.select("train[:0]")).tolist() == []


def test_a_class_without_a_record_has_no_weight(tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    assert class_weights(dataset, "train") == {0: 0.75, 1: 1.5}
    assert class_weights(dataset, "test") == {0: 1.0, 1: 0.0}


@pytest.mark.parametrize(("schema", "what"), [("tabular", "no class labels"), ("captioning", "no")])
def test_records_without_classes_are_a_usage_error(schema: str, what: str, tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    manifest = dataset.manifest.model_copy(update={"dataset_schema": preset(schema)})
    with pytest.raises(UsageError, match=what):
        class_weights(DatasetFolder(dataset.directory, manifest), "train")


def test_counts_of_lists_of_labels_are_in_the_manifest(tmp_path: Path) -> None:
    dataset = DatasetFolder.open(put(tmp_path))
    manifest = dataset.manifest.model_copy(update={"dataset_schema": preset("multi_label")})
    columns = {"class": pa.chunked_array([[["cat"], ["cat", "dog"]]])}
    said = "'labels' is a list of labels, which .splits[NAME].classes counts by id"
    counted = patch.object(DatasetFolder, "columns", lambda *_: columns)
    with counted, pytest.raises(UsageError, match=re.escape(said)):
        class_weights(DatasetFolder(dataset.directory, manifest), "train")
