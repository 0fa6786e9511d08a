"""Compares the records of two datasets by digests of their keys and feature values.

A record is represented by its location, a 128-bit digest of its key, and a 64-bit digest of each
value, so that millions of records fit in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.example_pb2 import SequenceExample

_KEY_BYTES, _VALUE_BYTES = 16, 8
_ABSENT = bytes(_VALUE_BYTES)


class RecordLocation(NamedTuple):
    """The location of a record in a dataset.

    Attributes:
        split: the number of the split.
        shard: the number of the shard in the split.
        row: the number of the record in the shard.
    """

    split: int
    shard: int
    row: int


class Pair(NamedTuple):
    """The records with the same key in both datasets.

    Attributes:
        left: the location of the record in the left dataset.
        right: the location of the record in the right dataset.
        features: the numbers of the features that differ.
    """

    left: RecordLocation
    right: RecordLocation
    features: tuple[int, ...] = ()


@dataclass
class Comparison:
    """The result of a comparison; results of parts can be merged.

    Attributes:
        same: the number of keys with the same values in the same split.
        different: the number of keys with different values, in any splits.
        features: the number of keys with different values of a feature, by number of the feature.
        moved: the number of keys with the same values, by (left split, right split).
        only_left: the number of keys that are only in the left dataset, by split.
        only_right: the number of keys that are only in the right dataset, by split.
        different_examples: the first records that differ.
        moved_examples: the first records that moved to another split.
        left_examples: the first records only in the left dataset.
        right_examples: the first records only in the right dataset.
    """

    same: int = 0
    different: int = 0
    features: Counter[int] = field(default_factory=Counter)
    moved: Counter[tuple[int, int]] = field(default_factory=Counter)
    only_left: Counter[int] = field(default_factory=Counter)
    only_right: Counter[int] = field(default_factory=Counter)
    different_examples: list[Pair] = field(default_factory=list)
    moved_examples: list[Pair] = field(default_factory=list)
    left_examples: list[RecordLocation] = field(default_factory=list)
    right_examples: list[RecordLocation] = field(default_factory=list)

    def merge(self, other: Comparison, shown: int) -> None:
        """Adds the result of another part.

        Args:
            other: the result.
            shown: the number of examples to keep of each kind.
        """
        self.same += other.same
        self.different += other.different
        for name in ("features", "moved", "only_left", "only_right"):
            getattr(self, name).update(getattr(other, name))
        for name in ("different", "moved", "left", "right"):
            examples = f"{name}_examples"
            found = nsmallest(shown, getattr(self, examples) + getattr(other, examples))
            setattr(self, examples, found)


def row_dtype(features: int) -> np.dtype:
    """Returns the structured type of the digests and the location of a record."""
    return np.dtype(
        [
            ("key", "<u8", (2,)),
            ("split", "<u2"),
            ("shard", "<u4"),
            ("row", "<u4"),
            ("values", "<u8", (features,)),
        ]
    )


def digest_rows(
    first: RecordLocation, keys: Sequence[str], values: bytes | None, features: int
) -> np.ndarray:
    """Returns the rows to compare for consecutive records of a shard.

    Args:
        first: the location of the first record.
        keys: the key of each record.
        values: the concatenated value digests of all records; None if they are not needed, because
            the other dataset has an identical shard.
        features: the number of features of a record.

    Returns:
        An array of `row_dtype` with one row per record.
    """
    rows = np.zeros(len(keys), row_dtype(features))
    digests = b"".join(hashlib.sha256(key.encode()).digest()[:_KEY_BYTES] for key in keys)
    rows["key"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    rows["split"], rows["shard"] = first.split, first.shard
    rows["row"] = np.arange(first.row, first.row + len(keys))
    if values is not None:
        rows["values"] = np.frombuffer(values, "<u8").reshape(-1, features)
    return rows


def value_digests(data: bytes, names: Iterable[str]) -> bytes:
    """Returns the concatenated digests of the feature values of a serialized example.

    The values of a feature in all frames of a sequence have a single digest.

    Args:
        data: the serialized message.
        names: the features in order; the digest of a missing feature is zero.
    """
    features = message_features(data)
    return b"".join(
        hashlib.blake2b(
            features[name].SerializeToString(deterministic=True), digest_size=_VALUE_BYTES
        ).digest()
        if name in features
        else _ABSENT
        for name in names
    )


def message_features(data: bytes) -> dict[str, Any]:
    """Returns the features of an example, and the feature lists of a sequence, as messages."""
    # An Example parses as a SequenceExample with only a context: both use field number 1.
    example = SequenceExample.FromString(data)
    return {**example.context.feature, **example.feature_lists.feature_list}


def compare(left: np.ndarray, right: np.ndarray, shown: int) -> Comparison:
    """Compares the records of two datasets.

    Args:
        left: the rows of the left dataset, with unique keys.
        right: the rows of the right dataset, with unique keys.
        shown: the number of examples to keep of each kind.
    """
    one, other = _pairs(left["key"], right["key"])
    a, b = left[one], right[other]  # rows with a common key, in the same order
    differing = a["values"] != b["values"]  # bool (common keys, features)
    different, moved = differing.any(axis=1), a["split"] != b["split"]
    moved &= ~different
    counts = differing.sum(axis=0)
    alone = np.delete(left, one), np.delete(right, other)
    return Comparison(
        same=int((~different & ~moved).sum()),
        different=int(different.sum()),
        features=Counter({n: int(count) for n, count in enumerate(counts) if count}),
        moved=Counter(zip(a["split"][moved].tolist(), b["split"][moved].tolist(), strict=True)),
        only_left=Counter(alone[0]["split"].tolist()),
        only_right=Counter(alone[1]["split"].tolist()),
        different_examples=_first_pairs(a, b, differing, different, shown),
        moved_examples=_first_pairs(a, b, differing, moved, shown),
        left_examples=nsmallest(shown, _locations(alone[0])),
        right_examples=nsmallest(shown, _locations(alone[1])),
    )


def _pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the row numbers of the common keys in each array; keys are unique in an array."""
    # Sorted together, equal keys are adjacent. lexsort is stable, so the left row comes first; the
    # number of the right row is offset by the number of left rows.
    keys = np.concatenate([left, right])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    equal = (keys[order[:-1]] == keys[order[1:]]).all(axis=1)
    return order[:-1][equal], order[1:][equal] - len(left)


def _first_pairs(
    left: np.ndarray, right: np.ndarray, differing: np.ndarray, chosen: np.ndarray, shown: int
) -> list[Pair]:
    numbers = np.flatnonzero(chosen)
    locations = zip(
        _locations(left[numbers]), _locations(right[numbers]), numbers.tolist(), strict=True
    )
    first = nsmallest(shown, locations)
    return [Pair(a, b, tuple(np.flatnonzero(differing[n]).tolist())) for a, b, n in first]


def _locations(rows: np.ndarray) -> list[RecordLocation]:
    columns = (rows[name].tolist() for name in ("split", "shard", "row"))
    return [RecordLocation(*location) for location in zip(*columns, strict=True)]
