"""Compares the records of two datasets by digests of their keys and feature values.

A record takes about ten numbers: a digest of 128 bits for the key and 64 bits for each value, so
that millions of records fit in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from recordmill.schemas.example_pb2 import FeatureList, SequenceExample
from recordmill.schemas.sums import Summed
from recordmill.transforms.functional.records.examples import feature_values

_KEY_BYTES, _VALUE_BYTES = 16, 8
_ABSENT = bytes(_VALUE_BYTES)
_SHOWN_TEXT = 60

# A serialized record, and the names of the classes of its features.
Side: TypeAlias = tuple[bytes, Mapping[str, Sequence[str]]]


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
    place = [("split", "<u2"), ("shard", "<u4"), ("row", "<u4")]
    return np.dtype([("key", "<u8", (2,)), *place, ("values", "<u8", (features,))])


def digest_rows(
    first: ComparedRecord, keys: Sequence[str], values: bytes | None, features: int
) -> np.ndarray:
    """Returns the rows to compare, of `row_dtype`, for consecutive records of a shard.

    `values` are the value digests of all records, concatenated; None if the other dataset has an
    identical shard.
    """
    rows = np.zeros(len(keys), row_dtype(features))
    digests = b"".join(hashlib.sha256(key.encode()).digest()[:_KEY_BYTES] for key in keys)
    rows["key"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    rows["split"], rows["shard"] = first.split, first.shard
    rows["row"] = np.arange(first.row, first.row + len(keys))
    if values is not None:
        rows["values"] = np.frombuffer(values, "<u8").reshape(-1, features)
    return rows


def other_ids(left: Sequence[str], right: Sequence[str]) -> dict[int, int]:
    """Returns the ids of the right classes that have another one on the left, and that one.

    A class that only the right has keeps its id, or gets a negative one if both have another there.
    """
    ids = {name: id_ for id_, name in enumerate(left)}
    kept = {ids[name] for name in right if name in ids}
    found = {n: ids.get(name, -1 - n if n in kept else n) for n, name in enumerate(right)}
    return {n: id_ for n, id_ in found.items() if n != id_}


def value_digests(
    data: bytes, names: Iterable[str], ids: Mapping[str, Mapping[int, int]] = MappingProxyType({})
) -> bytes:
    """Returns the digests of the feature values of a serialized example, concatenated.

    In sequences, the values of a feature in all frames count as one value. Missing features have a
    digest of zeros. `ids` replaces class ids, by feature.
    """
    features = _message_features(data)
    for name in ids.keys() & features.keys():
        for part in _parts(features[name]):
            part.int64_list.value[:] = [ids[name].get(v, v) for v in part.int64_list.value]
    return b"".join(
        hashlib.blake2b(
            features[name].SerializeToString(deterministic=True), digest_size=_VALUE_BYTES
        ).digest()
        if name in features
        else _ABSENT
        for name in names
    )


def _message_features(data: bytes) -> dict[str, Any]:
    """Returns the features of an example, and the feature lists of a sequence, as messages."""
    # An Example parses as a SequenceExample with only a context: both use field number 1.
    example = SequenceExample.FromString(data)
    return {**example.context.feature, **example.feature_lists.feature_list}


def changed_features(one: bytes, other: bytes, names: Sequence[str]) -> list[str]:
    """Returns the names of the features whose values differ in two records."""
    digests = (value_digests(data, names) for data in (one, other))
    rows = (np.frombuffer(found, "<u8") for found in digests)
    return [names[number] for number in np.flatnonzero(np.not_equal(*rows)).tolist()]


def both_values(names: Iterable[str], left: Side, right: Side) -> dict[str, dict[str, Any]]:
    """Returns the values of features in two records for JSON, with the class names of class ids."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for side, (data, classes) in (("left", left), ("right", right)):
        features = _message_features(data)
        for name, values in found.items():
            values[side] = value = _value(features, name)
            listed = classes.get(name, ())
            if isinstance(value, int) and 0 <= value < len(listed):
                values[f"{side}_class"] = listed[value]
    return found


def change_text(values: Mapping[str, Any], shown: int | None = None) -> str:
    """Returns the two values of a feature as text, each with `shown` characters at most.

    >>> change_text({"left": 1, "right": 2, "left_class": "cat"})
    '1 (cat) → 2'
    """
    sides = ((str(values[side]), values.get(f"{side}_class")) for side in ("left", "right"))
    texts = (value if name is None else f"{value} ({name})" for value, name in sides)
    short = (f"{t[:shown]}…" if shown and len(t) > shown else t for t in texts)
    return " → ".join(dict.fromkeys(short))


def _value(features: Mapping[str, Any], name: str) -> Any:
    if name not in features:
        return None
    return json_value([v for part in _parts(features[name]) for v in feature_values(part)])


def _parts(message: Any) -> Sequence[Any]:
    return message.feature if isinstance(message, FeatureList) else (message,)


def json_value(values: Sequence[Any]) -> Any:
    """Returns a feature value for JSON: bytes as text if possible, or else as size and digest."""
    shown = [_text(item) if isinstance(item, bytes) else item for item in values]
    return shown[0] if len(shown) == 1 else shown


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and len(text) <= _SHOWN_TEXT and (text or not data):
        return text
    return f"{len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()[:12]}…"


def compare(left: np.ndarray, right: np.ndarray, shown: int) -> Comparison:
    """Compares the records of two datasets; keys are unique in each."""
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
