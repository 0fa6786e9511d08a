"""Weights by which all classes of a dataset count the same, computed from the record index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.transforms.functional.splits import RecordRange
from recordmill.transforms.storage.dataset import Dataset

# The class id of a record without a label.
NO_CLASS = -1


def class_weights(dataset: Dataset, split: str) -> dict[int, float]:
    """Returns the weight of each class of a split or slice.

    `split` is a split or slice, such as `train[:80%]`. Raises UsageError if records have no class,
    or several.
    """
    ids = class_ids(dataset, dataset.select(split))
    names = dataset.manifest.classes[dataset.manifest.dataset_schema.named_features[0]]
    return {**dict.fromkeys(range(len(names)), 0.0), **balanced_weights(ids)}


def class_ids(dataset: Dataset, parts: Sequence[RecordRange]) -> np.ndarray:
    """Returns the class id of each record, (records,), or -1; no shard is read.

    `parts` are the records, as `Dataset.select` returns them. Raises UsageError if records have no
    class, or several.
    """
    schema = dataset.manifest.dataset_schema
    feature = next(iter(schema.named_features), None)
    column = dataset.columns(parts, ["class"])["class"]
    if feature is None or not pa.types.is_string(column.type):
        what = "has no class labels" if feature is None else f"{feature!r} is a list of labels"
        raise UsageError(
            f"{dataset.directory}: class weights need one label per record, but schema "
            f"{schema.name!r}: {what}."
        )
    # Names or numbers are looked up once per class, not once per record.
    distinct = column.combine_chunks().dictionary_encode()
    names = dataset.manifest.classes.get(feature, ())
    known = {name: number for number, name in enumerate(names)}
    ids = [known[name] if known else int(name) for name in distinct.dictionary.to_pylist()]
    rows: np.ndarray = distinct.indices.fill_null(NO_CLASS).to_numpy()
    return np.take([*ids, NO_CLASS], rows)  # -1 selects the last: no class


def balanced_weights(ids: np.ndarray) -> dict[int, float]:
    """Returns the weight of each class, as scikit-learn computes `class_weight="balanced"`.

    It is records / (classes * records of the class), over the classes that occur. `ids` are the
    class id of each record, (records,); -1 for none.
    """
    found, counts = np.unique(ids[ids != NO_CLASS], return_counts=True)
    weights = counts.sum() / (len(found) * counts)
    return dict(zip(found.tolist(), weights.tolist(), strict=True))
