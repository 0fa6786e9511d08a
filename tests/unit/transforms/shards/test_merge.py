"""Old and new records are merged in order, and conflicts are resolved."""

from __future__ import annotations

import pytest

from recordmill.schemas.records import (
    BuiltFrame,
    CopiedRecord,
    ImageRef,
    SerializedExample,
    Unchanged,
)
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.shards.base_shards import _merge_records, copied_images


def old(key: str, data: bytes = b"same") -> CopiedRecord:
    return CopiedRecord(key, data, {"split": "train"})


def ref(key: str, split: str = "") -> ImageRef:
    return ImageRef(key, "t.csv", 2, f"{key}.jpg", None, None, (), split)


def new(key: str, data: bytes = b"same", split: str = "") -> SerializedExample:
    return SerializedExample(ref(key, split), data)


def order(key: str) -> bytes:
    """Returns an order in which "X" and "x" collide."""
    return key.lower().encode()


def merged(old_records, new_records, **options):
    return list(_merge_records(iter(old_records), iter(new_records), order, **options))


def test_records_are_in_the_order_of_hashes_then_keys():
    found = merged(map(old, "beX"), map(new, "acxz"))
    names = [r.key if isinstance(r, CopiedRecord) else r.ref.key for r in found]
    assert names == ["a", "b", "c", "e", "X", "x", "z"]


def test_all_old_records_are_yielded_and_those_to_be_removed_are_marked():
    found = merged(map(old, "abc"), [new("b", b"other")], removed={"b", "c"})
    assert found == [
        old("a"),
        old("b")._replace(is_removed=True),
        new("b", b"other"),
        old("c")._replace(is_removed=True),
    ]


def test_a_reject_leaves_the_record_with_its_key():
    reject = Reject.of(ref("a"), Reason.MISSING_FILE, "gone")
    assert merged([old("a")], [reject], on_conflict="update") == [reject, old("a")]


@pytest.mark.parametrize("on_conflict", ["fail", "update", "keep"])
def test_a_row_whose_record_is_the_same_is_unchanged(on_conflict):
    assert merged([old("a")], [new("a")], on_conflict=on_conflict) == [old("a"), Unchanged(1)]
    stated = merged([old("a")], [new("a", split="train")], on_conflict=on_conflict)
    assert stated == [old("a"), Unchanged(1)]


def test_a_row_whose_record_differs_is_rejected_replaces_it_or_is_left_out():
    changed = new("a", b"other")
    kept, reject = merged([old("a")], [changed])
    assert (kept, reject.reason, reject.source) == (old("a"), Reason.CHANGED_RECORD, "t.csv:2")
    assert (
        "has other values or another image than the record with its key in --base" in reject.detail
    )
    removed = old("a")._replace(is_removed=True)
    assert merged([old("a")], [changed], on_conflict="update") == [removed, changed]
    assert merged([old("a")], [changed], on_conflict="keep") == [old("a"), Unchanged(1)]


@pytest.mark.parametrize("on_conflict", ["fail", "update"])
def test_a_record_keeps_its_split(on_conflict):
    kept, reject = merged([old("a")], [new("a", split="test")], on_conflict=on_conflict)
    assert (kept, reject.reason) == (old("a"), Reason.CHANGED_RECORD)
    assert reject.detail == "states the split 'test'; expected 'train', as in --base. Fix it."
    stated = merged([old("a")], [new("a", split="test")], on_conflict="keep")
    assert stated == [old("a"), Unchanged(1)]


def test_all_rows_of_a_changed_sequence_are_rejected():
    frames = tuple(BuiltFrame(ref(f"a{number}"), ()) for number in range(3))
    found = merged([old("a")], [SerializedExample(ref("a"), b"other", frames=frames)])
    assert [r.key for r in found[1:] if isinstance(r, Reject)] == ["a0", "a1", "a2"]
    same = merged([old("a")], [SerializedExample(ref("a"), b"same", frames=frames)])
    assert same == [old("a"), Unchanged(3)]


def test_the_treatments_of_copied_images_are_those_of_the_shard_unless_some_are_removed():
    mixed = {"jpeg kept": 2, "gif to png": 1}
    assert copied_images(mixed, 3, 0) == mixed
    assert copied_images(mixed, 3, 1) == {"copied": 2}
    assert copied_images(mixed, 3, 3) == {}
    assert copied_images({"jpeg kept": 3}, 3, 1) == {"jpeg kept": 2}
    assert copied_images({"jpeg kept": 3, "boxes clipped": 1}, 3, 1) == {"copied": 2}
    assert copied_images({}, 3, 1) == {}
