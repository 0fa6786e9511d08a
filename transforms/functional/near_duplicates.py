"""Finds groups of similar images by their perceptual hashes.

Two images are similar if their hashes differ in at most `MAX_DISTANCE` of 256 bits. Comparing all
pairs is quadratic, so only images that agree in all or all but one bit of one of four bands are
compared: bands of the lowest frequencies, which edits change least. Groups are the connected
components of similar pairs, so two images of a group may differ more than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.schemas.statistics import NearDuplicates
from recordmill.transforms.functional.duplicates import EXAMPLE_RECORDS, duplicate_stats
from recordmill.transforms.functional.read_ahead import batched

# PDQ recommends 31 of 256 bits, which a rotation by 2 degrees exceeds in four of five images. Of
# 8 x 10^8 pairs of random crops of different photographs, 10 differ in at most 56 bits, 2 in at
# most 40. Of 548,628 pairs of whole photographs, 1 differs in 54 bits, all others in 66 or more.
MAX_DISTANCE = 56

BANDS = 4

# Bits per band, depending on the number of images.
_MIN_WIDTH, _MAX_WIDTH = 12, 20

# Images with one value of a band to which an image is compared.
MAX_NEIGHBORS = 512

# Images of one part of a band; those of all bands are in memory together: at most 10 MB.
_PART_IMAGES = 2**16

# Hashes that are compared with another one at a time.
_COMPARED = 2**12

# Pairs that are found before they are connected: 16 MB.
_PENDING_PAIRS = 2**20

# Images in groups that one worker connects: half a gigabyte.
MAX_GROUPED = 2**24

# An image: the number of its record, and its hash in four words.
IMAGE = np.dtype([("id", "<u8"), ("phash", "<u8", 4)])

# Of encoded images: the bytes of an id, and the first id.
_HEADER_BYTES = 9

# A part of the values of each band, and the number of rows of the dataset.
Bucket: TypeAlias = tuple[int, int]

Ids: TypeAlias = npt.NDArray[np.uint64]
Images: TypeAlias = npt.NDArray[np.void]
Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Groups of similar images."""

    # The ids of all records with a similar image, sorted, (members,).
    members: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    roots: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    full: int = 0  # number of buckets in which not all images were compared
    # Whether there are more than `MAX_GROUPED` members, which are left out then.
    overflow: bool = False

    def roots_of(self, ids: Ids) -> tuple[npt.NDArray[np.bool_], Ids]:
        """Returns which ids are in a group, and the roots of these."""
        at = np.searchsorted(self.members, ids)
        found = np.zeros(len(ids), bool)
        inside = at < len(self.members)
        found[inside] = self.members[at[inside]] == ids[inside]
        return found, self.roots[at[found]]


def _band_width(rows: int) -> int:
    """Returns the bits per band: more for more rows, so that some 16 share a value.

    >>> _band_width(1000), _band_width(2**20), _band_width(10**9)
    (12, 17, 20)
    """
    return min(max(rows.bit_length() - 4, _MIN_WIDTH), _MAX_WIDTH)


def _zigzag() -> npt.NDArray[np.int64]:
    """Returns the bits of the bands in a hash of 16 x 16 bits, lowest frequencies first."""
    positions = [(row, column) for row in range(16) for column in range(16)]
    lowest = sorted(positions, key=lambda at: (sum(at), at))[: BANDS * _MAX_WIDTH]
    return np.array([16 * row + column for row, column in lowest])


_ORDER = _zigzag()


def _band_values(hashes: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.int64]:
    """Returns the bands of hashes (images, 4) as (images, bands), the lowest frequency first."""
    bits = np.unpackbits(np.ascontiguousarray(hashes).view(np.uint8).reshape(-1, 32), axis=1)
    # Neighboring frequencies are dealt out to different bands, so that all are equally stable.
    dealt = bits[:, _ORDER].reshape(-1, _MAX_WIDTH, BANDS)[:, :width]
    values: npt.NDArray[np.int64] = np.tensordot(dealt, 1 << np.arange(width)[::-1], axes=(1, 0))
    return values


def pack(ids: Ids, hashes: Iterable[str]) -> Images:
    """Returns images."""
    images = np.empty(len(ids), IMAGE)
    images["id"] = ids
    images["phash"] = np.frombuffer(bytes.fromhex("".join(hashes)), "<u8").reshape(-1, 4)
    return images


def _encode(images: Images) -> bytes:
    """Returns images as they are shuffled: 9 bytes, and 34 per image of at most 65,536 in a row.

    Ids are offsets from the first, of as few bytes as the last one takes.
    """
    first = images["id"].min()
    offsets = images["id"] - first
    size = np.min_scalar_type(offsets.max()).itemsize
    parts = np.uint8(size), first, offsets.astype(f"<u{size}"), images["phash"]
    return b"".join(part.tobytes() for part in parts)


def _decode(data: bytes) -> Images:
    size = data[0]
    each = size + IMAGE["phash"].itemsize
    images = np.empty((len(data) - _HEADER_BYTES) // each, IMAGE)
    hashes = _HEADER_BYTES + size * len(images)
    offsets = np.frombuffer(data[_HEADER_BYTES:hashes], f"<u{size}")
    images["id"] = np.frombuffer(data[1:_HEADER_BYTES], "<u8") + offsets
    images["phash"] = np.frombuffer(data[hashes:], "<u8").reshape(-1, 4)
    return images


def _parts_of_bands(images: Images, rows: int) -> tuple[Numbers, Numbers]:
    width, parts = _band_width(rows), 1 + rows // _PART_IMAGES
    values = _band_values(images["phash"], width)
    return values, values * parts >> width


def split_by_bucket(images: Images, rows: int) -> Iterator[tuple[Bucket, bytes]]:
    """Yields the images of each bucket: those of which any band is in one part of the values.

    In a small dataset, all images are in one bucket; in a large one, each is in up to four.
    """
    _, parts = _parts_of_bands(images, rows)
    for part in np.unique(parts).tolist():
        yield (part, rows), _encode(images[(parts == part).any(axis=1)])


def groups_of_bucket(bucket: Bucket, elements: Iterable[bytes]) -> Groups:
    """Returns the groups of similar images in a bucket."""
    part, rows = bucket
    images = np.concatenate([_decode(data) for data in elements])
    values, parts = _parts_of_bands(images, rows)
    inside = parts == part
    return merge_groups(
        _groups_of_band(images[inside[:, band]], values[inside[:, band], band], _band_width(rows))
        for band in range(BANDS)
    )


def _groups_of_band(images: Images, value: Numbers, width: int) -> Groups:
    # Sorted by value of the band, then by hash: images with equal hashes are adjacent.
    words = images["phash"]
    order = np.lexsort((images["id"], *(words[:, word] for word in range(4)), value))
    ids, words, value = images["id"][order], words[order], value[order]
    repeats = np.flatnonzero((words[1:] == words[:-1]).all(axis=1)) + 1
    equal = np.stack([ids[repeats - 1], ids[repeats]], axis=1)
    distinct = np.delete(np.arange(len(ids)), repeats)
    ids, words, value = ids[distinct], words[distinct], value[distinct]
    candidates = list(_candidates(value, width))
    groups = _connect_all(
        chain([equal], (ids[found] for found in _similar_pairs(words, candidates)))
    )
    incomplete = [value[last - first > MAX_NEIGHBORS] for first, last in candidates]
    return replace(groups, full=len(np.unique(np.concatenate(incomplete))))


def _candidates(values: Numbers, width: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yields the ranges of images, [first, last), that each image of sorted values is compared to.

    They have the same value or one bit more, so that no pair of images is compared twice. Where a
    bucket has a part of the values only, pairs that differ in a high bit are missed.
    """
    yield np.arange(1, len(values) + 1), np.searchsorted(values, values, "right")
    for bit in 1 << np.arange(width):
        first, last = (np.searchsorted(values, values | bit, side) for side in ("left", "right"))
        yield first, np.where(values & bit, first, last)


def _similar_pairs(
    words: npt.NDArray[np.uint64], candidates: Iterable[tuple[Numbers, Numbers]]
) -> Iterator[Numbers]:
    """Yields pairs of similar images, (pairs, 2), by their positions."""
    halves = np.ascontiguousarray(words[:, :2])
    for first, last in candidates:
        compared = np.arange(len(words))
        for step in range(MAX_NEIGHBORS):
            compared = compared[first[compared] + step < last[compared]]
            if not len(compared):
                break
            others = first[compared] + step
            # Nearly all pairs of different images already exceed the limit in the first half.
            near = _distances(halves[compared] ^ halves[others]) <= MAX_DISTANCE
            one, other = compared[near], others[near]
            near = _distances(words[one] ^ words[other]) <= MAX_DISTANCE
            yield np.stack([one[near], other[near]], axis=1)


def _distances(differing: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    bits = np.bitwise_count(differing)
    # Four times as fast as `sum` over such short rows.
    distances: npt.NDArray[np.int64] = np.einsum("ij->i", bits, dtype=np.int64)
    return distances


def distances_to(some: Sequence[str], others: Sequence[str]) -> dict[str, int]:
    """Returns the number of bits in which each hash differs from the nearest of some others.

    >>> list(distances_to(["00" * 32], ["00" * 31 + "03", "ff" * 32]).values())
    [2, 256]
    """
    first = pack(np.arange(len(some), dtype=np.uint64), some)["phash"]
    nearest = dict.fromkeys(others, 8 * 32)
    for names in batched(others, _COMPARED):
        words = pack(np.arange(len(names), dtype=np.uint64), names)["phash"]
        for one in first:
            found = _distances(words ^ one)
            for name, distance in zip(names, found.tolist(), strict=True):
                nearest[name] = min(nearest[name], distance)
    return nearest


def _connect(pairs: Ids) -> Groups:
    """Returns the connected components of pairs of ids, (pairs, 2)."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]  # two frames of one record
    members, numbers = np.unique(pairs.ravel(), return_inverse=True)
    if len(members) > MAX_GROUPED:
        return Groups(overflow=True)
    ones, others = numbers.reshape(-1, 2).T
    labels = np.arange(len(members))
    # Each round gives both ends of a pair the smaller label, then halves the way to the smallest
    # label of the component: the number of rounds is logarithmic in the longest chain.
    while not (labels[ones] == labels[others]).all():
        smaller = np.minimum(labels[ones], labels[others])
        np.minimum.at(labels, labels[ones], smaller)
        np.minimum.at(labels, labels[others], smaller)
        labels = labels[labels]
    return Groups(members, members[labels])


def _connect_all(parts: Iterable[Ids]) -> Groups:
    """Returns the connected components of pairs in parts, of which few are in memory at a time.

    In a large group, images have many more pairs than it takes to connect them.
    """
    groups, pending, size = Groups(), list[Ids](), 0
    for pairs in parts:
        pending.append(pairs)
        size += len(pairs)
        if size > max(_PENDING_PAIRS, len(groups.members)):
            groups, pending, size = _connect(np.concatenate([_tree(groups), *pending])), [], 0
    return _connect(np.concatenate([_tree(groups), *pending]))


def _tree(groups: Groups) -> Ids:
    """Returns the fewest pairs that connect groups: each member and its root."""
    return np.stack([groups.members, groups.roots], axis=1)


def merge_groups(parts: Iterable[Groups]) -> Groups:
    """Returns the connected components of the groups of several buckets."""
    found = list(parts)
    full = sum(groups.full for groups in found)
    if any(groups.overflow for groups in found):
        return Groups(full=full, overflow=True)
    # The pair of a root with itself adds nothing: another member has it in a pair.
    merged = _connect(np.concatenate([_tree(groups) for groups in (Groups(), *found)]))
    return replace(merged, full=full)


class GroupMember(NamedTuple):
    """A record of a group of similar images."""

    split: str
    label: str  # its classes as one text; "" for none
    key: str
    sha256: str  # hex digest of its image, or the first digits of it
    shard: int
    record: int


def statistics_of_group(members: Iterable[GroupMember]) -> NearDuplicates:
    """Returns the statistics of one group; empty if all of its images are identical."""
    counts: Counter[tuple[str, str]] = Counter()
    # {(split, label): {sha256: the smallest member with the image}}, of bounded size: a group may
    # have millions of members.
    firsts: dict[tuple[str, str], dict[str, GroupMember]] = {}
    for member in members:
        at = member.split, member.label
        counts[at] += 1
        images = firsts.setdefault(at, {})
        images[member.sha256] = min(images.get(member.sha256, member), member)
        if len(images) > EXAMPLE_RECORDS:
            del images[max(images, key=lambda image: images[image])]
    if len({sha256 for images in firsts.values() for sha256 in images}) < 2:
        return NearDuplicates()
    seen = tuple(
        (
            *at,
            counts[at],
            tuple((one.key, one.shard, one.record) for one in sorted(images.values())),
        )
        for at, images in sorted(firsts.items())
    )
    found = duplicate_stats({b"": seen})  # as if all images were the same
    return NearDuplicates(
        groups=1,
        records=counts.total(),
        duplicates=found.duplicates,
        leaks=found.leaks,
        conflicts=found.conflicts,
        examples=found.groups,
    )
