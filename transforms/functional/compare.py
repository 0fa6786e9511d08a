"""Compares the records of two datasets by digests: of the key, and of each feature's value.

A record makes some ten numbers, so that a million of them take little memory; the digests of 128
and 64 bits stand for what they are made from.
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
    """Where a record is.

    Attributes:
        split: the number of its split.
        shard: the number of its shard within the split.
        row: its number within the shard.
    """

    split: int
    shard: int
    row: int


class Pair(NamedTuple):
    """A key that both datasets have.

    Attributes:
        left: where it is in one.
        right: and in the other.
        features: the numbers of the features that differ.
    """

    left: RecordLocation
    right: RecordLocation
    features: tuple[int, ...] = ()


@dataclass
class Comparison:
    """What was found; comparisons of parts can be merged.

    Attributes:
        same: keys in the same split with the same values.
        different: keys with different values, in whichever splits.
        features: number of a feature to how many of those differ in it.
        moved: (left split, right split) to keys with the same values in both.
        only_left: split to keys that the other has not.
        only_right: the same of the other.
        examples: by name of the above, the first of them.
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
        """Takes note of what was found elsewhere, and keeps the first examples of each sort."""
        self.same += other.same
        self.different += other.different
        for name in ("features", "moved", "only_left", "only_right"):
            getattr(self, name).update(getattr(other, name))
        for name in ("different", "moved", "left", "right"):
            examples = f"{name}_examples"
            found = nsmallest(shown, getattr(self, examples) + getattr(other, examples))
            setattr(self, examples, found)


def row_dtype(features: int) -> np.dtype:
    """Returns what is kept of a record, for so many features."""
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
    spot: RecordLocation, keys: Sequence[str], values: bytes | None, features: int
) -> np.ndarray:
    """Returns what is kept of records that follow each other in a shard.

    Args:
        spot: where the first is.
        keys: of each.
        values: the digests of all values of all of them; None where they need none, because the
            other dataset has the very same shard.
        features: how many values a record has.
    """
    rows = np.zeros(len(keys), row_dtype(features))
    digests = b"".join(hashlib.sha256(key.encode()).digest()[:_KEY_BYTES] for key in keys)
    rows["key"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    rows["split"], rows["shard"] = spot.split, spot.shard
    rows["row"] = np.arange(spot.row, spot.row + len(keys))
    if values is not None:
        rows["values"] = np.frombuffer(values, "<u8").reshape(-1, features)
    return rows


def value_digests(data: bytes, names: Iterable[str]) -> bytes:
    """Returns the digest of each feature's value in a serialized example, one after the other.

    Of a sequence, a feature of its frames is one value.
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
    """Returns the features of an example, and the lists of a sequence, as protobuf messages.

    An Example is a SequenceExample that has only its context: both have it in their first field.
    """
    example = SequenceExample.FromString(data)
    return {**example.context.feature, **example.feature_lists.feature_list}


def compare(left: np.ndarray, right: np.ndarray, shown: int) -> Comparison:
    """Returns what two sets of records have in common, and what not.

    Args:
        left: rows of one dataset.
        right: rows of the other.
        shown: how many examples to keep of each sort.
    """
    one, other = _pairs(left["key"], right["key"])
    a, b = left[one], right[other]
    differing = a["values"] != b["values"]
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
        left_examples=nsmallest(shown, _spots(alone[0])),
        right_examples=nsmallest(shown, _spots(alone[1])),
    )


def _pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of equal keys in both; a key stands once in each."""
    keys = np.concatenate([left, right])
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: the left one comes first
    equal = (keys[order[:-1]] == keys[order[1:]]).all(axis=1)
    return order[:-1][equal], order[1:][equal] - len(left)


def _first_pairs(
    left: np.ndarray, right: np.ndarray, differing: np.ndarray, chosen: np.ndarray, shown: int
) -> list[Pair]:
    numbers = np.flatnonzero(chosen)
    spots = zip(_spots(left[numbers]), _spots(right[numbers]), numbers.tolist(), strict=True)
    first = nsmallest(shown, spots)
    return [Pair(a, b, tuple(np.flatnonzero(differing[n]).tolist())) for a, b, n in first]


def _spots(rows: np.ndarray) -> list[RecordLocation]:
    columns = (rows[name].tolist() for name in ("split", "shard", "row"))
    return [RecordLocation(*spot) for spot in zip(*columns, strict=True)]
