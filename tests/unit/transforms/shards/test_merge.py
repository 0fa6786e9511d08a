"""Old and new records are merged in order, and conflicts are resolved."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import (
    BuiltFrame,
    CopiedRecord,
    ImageRef,
    SerializedExample,
    Unchanged,
)
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.records.examples import _encode_example
from recordmill.transforms.shards.base_shards import _merge_records, copied_images

SCHEMA = {"features": {n: {"kind": "int64", "from": f"column:{n}"} for n in "abcd"}}
SCHEMA["features"] |= {"text": {"kind": "bytes", "from": "column:text"}}
RESOLVED = ResolvedSchema(Schema.model_validate(SCHEMA), {"a": ("cat", "dog")})
FEATURES = RESOLVED.schema.features


def record(**values: int | bytes) -> bytes:
    return _encode_example(FEATURES, {**dict.fromkeys(FEATURES, 0), "text": b"", **values})


def old(key: str, data: bytes = record()) -> CopiedRecord:
    return CopiedRecord(key, data, {"split": "train"})


def ref(key: str, split: str = "") -> ImageRef:
    return ImageRef(key, "t.csv", 2, f"{key}.jpg", None, None, (), split)


def new(key: str, data: bytes = record(), split: str = "") -> SerializedExample:
    return SerializedExample(ref(key, split), data)


def order(key: str) -> bytes:
    """Returns an order in which "X" and "x" collide."""
    return key.lower().encode()


def merged(old_records, new_records, on_conflict="fail"):
    return list(_merge_records(old_records, iter(new_records), RESOLVED, order, on_conflict))


def test_records_are_in_the_order_of_hashes_then_keys():
    found = merged(map(old, "beX"), map(new, "acxz"))
    names = [r.key if isinstance(r, CopiedRecord) else r.ref.key for r in found]
    assert names == ["a", "b", "c", "e", "X", "x", "z"]


def test_all_old_records_are_yielded_also_those_that_are_removed():
    kept, replaced, removed = (old(key)._replace(is_removed=key > "a") for key in "abc")
    found = merged([kept, replaced, removed], [new("b", record(a=1))])
    assert found == [kept, replaced, new("b", record(a=1)), removed]


def test_a_reject_leaves_the_record_with_its_key():
    reject = Reject.of(ref("a"), Reason.MISSING_FILE, "gone")
    assert merged([old("a")], [reject], on_conflict="update") == [reject, old("a")]


@pytest.mark.parametrize("on_conflict", ["fail", "update", "keep"])
def test_a_row_whose_record_is_the_same_is_unchanged(on_conflict):
    assert merged([old("a")], [new("a")], on_conflict=on_conflict) == [old("a"), Unchanged(1)]
    stated = merged([old("a")], [new("a", split="train")], on_conflict=on_conflict)
    assert stated == [old("a"), Unchanged(1)]


def test_a_row_whose_record_differs_is_rejected_replaces_it_or_is_left_out():
    changed = new("a", record(a=1))
    kept, reject = merged([old("a")], [changed])
    assert (kept, reject.reason, reject.source) == (old("a"), Reason.CHANGED_RECORD, "t.csv:2")
    removed = old("a")._replace(is_removed=True)
    assert merged([old("a")], [changed], on_conflict="update") == [removed, changed]
    assert merged([old("a")], [changed], on_conflict="keep") == [old("a"), Unchanged(1)]


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ({"a": 1}, "a: 0 (cat) → 1 (dog)"),
        (
            {"a": 1, "b": 7, "c": 8, "d": 9},
            "a: 0 (cat) → 1 (dog); b: 0 → 7; c: 0 → 8; and 1 more feature",
        ),
        ({"text": b"one two"}, "text:  → one two"),
        ({"text": bytes(70)}, "text:  → 70 bytes, sha256 82fcfd521517…"),
    ],
    ids=str,
)
def test_a_changed_record_is_rejected_with_the_values_that_differ(
    values: dict[str, Any], changes: str
) -> None:
    _, reject = merged([old("a")], [new("a", record(**values))])
    assert reject.detail == f"differs from the record with its key in --base in {changes}"


@pytest.mark.parametrize("on_conflict", ["fail", "update"])
def test_a_record_keeps_its_split(on_conflict):
    kept, reject = merged([old("a")], [new("a", split="test")], on_conflict=on_conflict)
    assert (kept, reject.reason) == (old("a"), Reason.CHANGED_RECORD)
    assert reject.detail == "states the split 'test'; expected 'train', as in --base. Fix it."
    stated = merged([old("a")], [new("a", split="test")], on_conflict="keep")
    assert stated == [old("a"), Unchanged(1)]


def test_all_rows_of_a_changed_sequence_are_rejected():
    frames = tuple(BuiltFrame(ref(f"a{number}"), ()) for number in range(3))
    found = merged([old("a")], [SerializedExample(ref("a"), record(a=1), frames=frames)])
    assert [r.key for r in found[1:] if isinstance(r, Reject)] == ["a0", "a1", "a2"]
    same = merged([old("a")], [SerializedExample(ref("a"), record(), frames=frames)])
    assert same == [old("a"), Unchanged(3)]


def test_the_treatments_of_copied_images_are_those_of_the_shard_unless_some_are_removed():
    mixed = {"jpeg kept": 2, "gif to png": 1}
    assert copied_images(mixed, 3, 0) == mixed
    assert copied_images(mixed, 3, 1) == {"copied": 2}
    assert copied_images(mixed, 3, 3) == {}
    assert copied_images({"jpeg kept": 3}, 3, 1) == {"jpeg kept": 2}
    assert copied_images({"jpeg kept": 3, "boxes clipped": 1}, 3, 1) == {"copied": 2}
    assert copied_images({}, 3, 1) == {}
