"""Byte ranges of shards: which requests they take."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import VerificationFailed
from recordmill.transforms.storage import files
from recordmill.transforms.storage.dataset import _ByteRange, _coalesced, _read_ranges

CONTENT = {path: random.Random(path).randbytes(4 * 2**20) for path in ("s3://b/x", "s3://b/y")}
SPANS = st.tuples(st.sampled_from(sorted(CONTENT)), st.integers(0, 999), st.integers(0, 99))


def ranges_of(spans: list[tuple[str, int, int]]) -> list[_ByteRange]:
    return [_ByteRange(path, "", start, start + size) for path, start, size in spans]


@given(st.lists(SPANS, max_size=20), st.integers(0, 50))
def test_coalesced_ranges_cover_all_and_are_far_apart(
    spans: list[tuple[str, int, int]], gap: int
) -> None:
    ranges = ranges_of(spans)
    found = list(_coalesced(ranges, gap))
    assert sorted(number for _, numbers in found for number in numbers) == list(range(len(ranges)))
    for whole, numbers in found:
        parts = [ranges[number] for number in numbers]
        assert {part.path for part in parts} == {whole.path}
        assert whole.start == min(part.start for part in parts)
        assert whole.stop == max(part.stop for part in parts)
    for (one, _), (following, _) in pairwise(found):
        assert one.path < following.path or one.stop + gap < following.start


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    found = []

    def read(path: str, span: tuple[int, int]) -> bytes:
        found.append((path, *span))
        return CONTENT[path][slice(*span)]

    monkeypatch.setattr(files, "read", read)
    return found


def test_close_ranges_of_an_object_take_one_request(requests: list[tuple[str, int, int]]) -> None:
    spans = [("s3://b/y", 50, 10), ("s3://b/x", 3_000_000, 9), ("s3://b/x", 7, 100)]
    spans += [("s3://b/x", 900_000, 5), ("s3://b/y", 50, 10)]
    ranges = ranges_of(spans)
    assert _read_ranges(ranges) == [CONTENT[r.path][r.start : r.stop] for r in ranges]
    assert sorted(requests) == [
        ("s3://b/x", 7, 900_005),
        ("s3://b/x", 3_000_000, 3_000_009),
        ("s3://b/y", 50, 60),
    ]
    assert _read_ranges([]) == []


def test_ranges_end_with_the_file(requests: list[tuple[str, int, int]], tmp_path: Path) -> None:
    assert [len(d) for d in _read_ranges([_ByteRange("s3://b/x", "", 2**22 - 3, 2**22 + 9)])] == [3]
    (tmp_path / "x").write_bytes(b"abc")
    path = str(tmp_path / "x")
    assert _read_ranges([_ByteRange(path, "", 1, 9), _ByteRange(path, "", 0, 1)]) == [b"bc", b"a"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match="x: is missing"):
        _read_ranges([_ByteRange(f"{tmp_path}/x", "", 0, 1)])
