"""Compares the records of two datasets by digests of their keys and feature values.

A record takes about ten numbers: a digest of 128 bits for the key and 64 bits for each value, so
that millions of records fit in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any, ClassVar, NamedTuple

import numpy as np

from recordmill.schemas.example_pb2 import SequenceExample
from recordmill.schemas.sums import Summed

_KEY_BYTES, _VALUE_BYTES = 16, 8
_ABSENT = bytes(_VALUE_BYTES)


class ComparedRecord(NamedTuple):
    """The location of a record in a dataset."""

    split: int
    shard: int
    row: int


class ComparedPair(NamedTuple):
    """A key that both datasets have."""

    left: ComparedRecord
    right: ComparedRecord
    features: tuple[int, ...] = ()


@dataclass
class Comparison(Summed):
    """The result of a comparison, of all records or a part."""

    kept: ClassVar[int | None] = None

    same: int = 0  # number of keys in the same split with the same values
    different: int = 0  # number of keys with different values, in any splits
    # The number of keys that differ in a feature, by the feature's index.
    features: Counter[int] = field(default_factory=Counter)
    # The number of keys with the same values by (left split, right split).
    moved: Counter[tuple[int, int]] = field(default_factory=Counter)
    # The number of keys that only the left dataset has, by split.
    only_left: Counter[int] = field(default_factory=Counter)
    only_right: Counter[int] = field(default_factory=Counter)
    different_examples: list[ComparedPair] = field(default_factory=list)
    # The first records that moved to another split.
    moved_examples: list[ComparedPair] = field(default_factory=list)
    # The first records only in the left dataset.
    left_examples: list[ComparedRecord] = field(default_factory=list)
    # The first records only in the right dataset.
    right_examples: list[ComparedRecord] = field(default_factory=list)

    def first(self, shown: int) -> Comparison:
        """Returns the result with the first examples of each kind only."""
        names = (name for name in vars(self) if name.endswith("_examples"))
        return replace(self, **{name: getattr(self, name)[:shown] for name in names})


def row_dtype(features: int) -> np.dtype:
    """Returns the structured type of a record's digests and location."""
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
    first: ComparedRecord, keys: Sequence[str], values: bytes | None, features: int
) -> np.ndarray:
    """Returns the rows to compare for consecutive records of a shard.

    Returns an array of `row_dtype`, one row for each record. `values` are the value digests of all
    records, concatenated; None if they are not needed, because the other dataset has an identical
    shard.
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
    """Returns the digests of the feature values of a serialized example, concatenated.

    In sequences, the values of a feature in all frames count as one value. `names` are the
    features, in order; missing ones have a digest of zeros.
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

    `right`: rows of the other, with unique keys. `shown` is number of examples to keep of each
    kind.
    """
    one, other = _pairs(left["key"], right["key"])
    a, b = left[one], right[other]
    differing = a["values"] != b["values"]  # (common keys, features)
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
    """Returns the row numbers of equal keys in both; keys are unique in each."""
    # Sorted together, equal keys are adjacent: the left row and then, lexsort being stable, the
    # right one, whose number is offset by the number of left rows.
    keys = np.concatenate([left, right])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    equal = (keys[order[:-1]] == keys[order[1:]]).all(axis=1)
    return order[:-1][equal], order[1:][equal] - len(left)


def _first_pairs(
    left: np.ndarray, right: np.ndarray, differing: np.ndarray, chosen: np.ndarray, shown: int
) -> list[ComparedPair]:
    numbers = np.flatnonzero(chosen)
    locations = zip(
        _locations(left[numbers]), _locations(right[numbers]), numbers.tolist(), strict=True
    )
    first = nsmallest(shown, locations)
    return [ComparedPair(a, b, tuple(np.flatnonzero(differing[n]).tolist())) for a, b, n in first]


def _locations(rows: np.ndarray) -> list[ComparedRecord]:
    columns = (rows[name].tolist() for name in ("split", "shard", "row"))
    return [ComparedRecord(*location) for location in zip(*columns, strict=True)]
