"""Tests that similar images are found and grouped."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from recordmill.schemas.statistics import Conflicts, Leakage, NearDuplicates, RecordExample
from recordmill.transforms.functional import near_duplicates
from recordmill.transforms.functional.near_duplicates import (
    BANDS,
    MAX_DISTANCE,
    Bucket,
    GroupMember,
    Groups,
    _band_values,
    _connect,
    _decode,
    _encode,
    groups_of_bucket,
    merge_groups,
    pack,
    split_by_bucket,
    statistics_of_group,
)

RNG = np.random.default_rng(19)
# Bits of no band: changing them changes the distance, but not the buckets.
OUTSIDE = [bit for bit in range(255, -1, -1) if bit not in set(near_duplicates._ORDER.tolist())]


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch):
    """Draws the same numbers in each test, whichever tests ran before it in the process."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(19))


def random_hash() -> str:
    return RNG.bytes(32).hex()


def changed(phash: str, bits: list[int]) -> str:
    """Returns a hash with some bits inverted, counted from the first."""
    return f"{int(phash, 16) ^ sum(1 << (255 - bit) for bit in bits):064x}"


def groups_of(hashes: dict[int, str], rows: int = 1000) -> Groups:
    """Returns the groups of images by id, compared as in the pipeline."""
    buckets: dict[Bucket, list[bytes]] = {}
    for id_, phash in hashes.items():  # one shard per image
        packed = pack(np.array([id_], np.uint64), [phash])
        for bucket, images in split_by_bucket(packed, rows):
            buckets.setdefault(bucket, []).append(images)
    return merge_groups([groups_of_bucket(*bucket) for bucket in buckets.items()])


def as_dict(groups: Groups) -> dict[int, int]:
    return dict(zip(groups.members.tolist(), groups.roots.tolist(), strict=True))


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(0, {1: 1, 2: 1}), (MAX_DISTANCE, {1: 1, 2: 1}), (MAX_DISTANCE + 1, {})],
)
def test_images_are_similar_up_to_a_distance(distance, expected):
    phash = random_hash()
    assert as_dict(groups_of({1: phash, 2: changed(phash, OUTSIDE[:distance])})) == expected


def test_any_seven_changed_bits_leave_a_band_with_one_of_them():
    phash = random_hash()
    for _ in range(50):
        bits = RNG.choice(near_duplicates._ORDER, 2 * BANDS - 1, replace=False).tolist()
        assert as_dict(groups_of({5: phash, 3: changed(phash, bits)})) == {3: 3, 5: 3}


def test_two_changed_bits_in_each_band_separate_images():
    phash = random_hash()
    first_of_each_band = near_duplicates._ORDER[: 2 * BANDS].tolist()
    assert as_dict(groups_of({1: phash, 2: changed(phash, first_of_each_band)})) == {}


def test_pairs_are_those_of_a_comparison_with_all_images():
    centers = [RNG.bytes(32).hex() for _ in range(30)]
    hashes = [
        changed(center, RNG.choice(256, 32, replace=False).tolist())
        for center in centers
        for _ in range(20)
    ]
    images = pack(np.arange(len(hashes), dtype=np.uint64), hashes)
    bits = np.unpackbits(images["phash"].view(np.uint8).reshape(-1, 32), axis=1)
    distances = (bits[:, None] != bits).sum(axis=2)
    values = _band_values(images["phash"], 12)
    differing = np.bitwise_count((values[:, None] ^ values).astype(np.uint64)).min(axis=2)
    one, other = np.nonzero((distances <= MAX_DISTANCE) & (differing <= 1))
    expected = _connect(np.stack([one, other], axis=1).astype(np.uint64))
    assert 100 < len(expected.members) < len(hashes)  # some pairs are too far, or in no common band
    assert as_dict(groups_of(dict(enumerate(hashes)))) == as_dict(expected)


def test_many_pairs_are_connected_in_parts(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_PENDING_PAIRS", 3)
    phash = random_hash()
    hashes = {i: changed(phash, OUTSIDE[2 * i : 2 * i + 2]) for i in range(20)}
    assert as_dict(groups_of(hashes)) == dict.fromkeys(range(20), 0)


def test_groups_are_connected_over_several_images():
    phash = random_hash()
    half = changed(phash, OUTSIDE[:40])
    far = changed(phash, OUTSIDE[:80])
    others = {10 + i: random_hash() for i in range(200)}
    assert as_dict(groups_of({3: phash, 7: half, 2: far, **others})) == {2: 2, 3: 2, 7: 2}


def test_two_frames_of_one_record_are_no_group():
    packed = pack(np.array([4, 4], np.uint64), [random_hash()] * 2)
    (bucket, images), *others = split_by_bucket(packed, 10)
    assert (as_dict(groups_of_bucket(bucket, [images])), others) == ({}, [])


@pytest.mark.parametrize(
    ("rows", "copies"), [(10, 1), (65_535, 1), (65_536, 1.88), (10**6, 3.64), (10**8, 4)]
)
def test_an_image_is_in_each_bucket_of_one_of_its_bands(rows, copies):
    packed = pack(np.arange(2000, dtype=np.uint64), [random_hash() for _ in range(2000)])
    found = [_decode(images) for _, images in split_by_bucket(packed, rows)]
    assert sum(map(len, found)) / 2000 == pytest.approx(copies, rel=0.02)
    assert set(np.concatenate(found)["id"].tolist()) == set(range(2000))


@pytest.mark.parametrize("rows", [50_000, 100_000, 1_000_000])
def test_groups_do_not_depend_on_the_buckets(rows, monkeypatch):
    centers = [random_hash() for _ in range(200)]
    drawn = ((c, RNG.choice(256, n, replace=False)) for c in centers for n in (0, 20, 40))
    hashes = {i: changed(center, bits.tolist()) for i, (center, bits) in enumerate(drawn)}
    found = groups_of(hashes, rows)
    monkeypatch.setattr(near_duplicates, "_PART_IMAGES", 10**9)
    together = groups_of(hashes, rows)
    # Only pairs that differ in a high bit of a band are in different buckets.
    assert set(found.members.tolist()) <= set(together.members.tolist())
    assert len(together.members) > 300
    assert len(found.members) > 0.95 * len(together.members)


@pytest.mark.parametrize(
    ("ids", "size"),
    [([7], 1), ([5 << 49, 5 << 49 | 255], 1), ([2**63 + 256, 2**63], 2), ([9, 2**64 - 1], 8)],
)
def test_encoded_images_take_few_bytes(ids, size):
    images = pack(np.array(ids, np.uint64), [random_hash() for _ in ids])
    assert (_decode(_encode(images)) == images).all()
    assert len(_encode(images)) == 9 + len(ids) * (size + 32)


def test_bands_use_different_bits_of_low_frequencies():
    zero = np.zeros((1, 4), np.uint64)
    for bit in near_duplicates._ORDER[: BANDS * 12]:
        one = pack(np.zeros(1, np.uint64), [changed("0" * 64, [int(bit)])])["phash"]
        assert (_band_values(one, 12) != _band_values(zero, 12)).sum() == 1
    assert {(int(bit) // 16 + int(bit) % 16) < 13 for bit in near_duplicates._ORDER} == {True}


def test_full_buckets_are_counted(monkeypatch):
    monkeypatch.setattr(near_duplicates, "MAX_NEIGHBORS", 2)
    phash = random_hash()
    hashes = {i: changed(phash, OUTSIDE[i * 30 : i * 30 + 30]) for i in range(5)}
    assert groups_of(hashes).full == BANDS
    assert groups_of(dict(list(hashes.items())[:3])).full == 0


def test_too_many_members_overflow(monkeypatch):
    monkeypatch.setattr(near_duplicates, "MAX_GROUPED", 3)
    two = _connect(np.array([[1, 2]], np.uint64))
    assert as_dict(two) == {1: 1, 2: 1}
    overflown = merge_groups([two, _connect(np.array([[3, 4]], np.uint64))])
    assert (overflown.overflow, as_dict(overflown)) == (True, {})
    assert merge_groups([two, overflown]).overflow


@pytest.mark.parametrize("length", [2, 3, 1000])
def test_a_long_chain_is_one_group(length):
    ids = RNG.permutation(length).astype(np.uint64) + np.uint64(5)
    groups = _connect(np.stack([ids[1:], ids[:-1]], axis=1))
    assert as_dict(groups) == dict.fromkeys(range(5, 5 + length), 5)


def test_roots_of_ids():
    groups = _connect(np.array([[9, 4], [12, 20]], np.uint64))
    found, roots = groups.roots_of(np.array([0, 4, 9, 10, 20, 21], np.uint64))
    assert (found.tolist(), roots.tolist()) == ([False, True, True, False, True, False], [4, 4, 12])
    assert Groups().roots_of(np.array([1], np.uint64))[0].tolist() == [False]


def member(split: str, key: str, sha256: str, label: str = "cat") -> GroupMember:
    return GroupMember(split, label, key, sha256, 0, 0)


def test_identical_images_are_no_near_duplicates():
    members = [member("train", "a", "11"), member("test", "b", "11", "dog")]
    assert statistics_of_group(members) == NearDuplicates()


def test_statistics_of_groups():
    leaked = [
        *(member("train", "a", "11"), member("train", "b", "12"), member("test", "c", "13")),
        member("train", "d", "14", "dog"),
    ]
    found = statistics_of_group(leaked)
    assert found == statistics_of_group(reversed(leaked))
    assert (found.groups, found.records, found.duplicates) == (1, 4, {"train": 2})
    leak = Leakage(splits=("test", "train"), images=1, records=4, examples=(("c", "a"),))
    assert found.leaks == (leak,)
    assert found.conflicts == Conflicts(images=1, records=4, examples=(("a", "d"),))
    keys = [example.key for example in found.examples[0].examples]
    assert keys == ["c", "a", "d", "b"]  # the first of each split and label, then the others
    assert found.examples[0].examples[0] == RecordExample(key="c", split="test", shard=0, index=0)

    within = statistics_of_group([member("test", "x", "21"), member("test", "y", "22")])
    total = NearDuplicates.sum_of([within, found, NearDuplicates(compared=7, full_buckets=2)])
    assert (total.groups, total.records, total.compared, total.full_buckets) == (2, 6, 7, 2)
    assert total.duplicates == {"test": 1, "train": 2}
    assert [group.spans_splits for group in total.examples] == [True, False]


def test_a_large_group_has_few_examples():
    members = [member("train", f"{i:04}", f"{i:04}") for i in RNG.permutation(2000)]
    found = statistics_of_group(members)
    assert (found.records, found.duplicates) == (2000, {"train": 1999})
    assert [example.key for example in found.examples[0].examples] == [
        "0000",
        "0001",
        "0002",
        "0003",
    ]
