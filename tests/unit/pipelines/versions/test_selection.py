"""Which records are removed, which similar ones remain, and what the certificate states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.forget import (
    Selection,
    SimilarRecord,
    _check_keys,
    _removed_records,
    _similar_records,
)
from recordmill.schemas.errors import UsageError
from recordmill.schemas.removal import digest_of_key
from tests.unit.pipelines.versions.birds import Birds, dataset

PHASH = "0" * 64
NEAR = "0" * 62 + "ff"
FAR = "f" * 64


def selection(of: Birds, keys: tuple[str, ...], images: tuple[str, ...], **more: Any) -> Selection:
    return Selection(
        of, {("train", 0): keys}, frozenset(images), (PHASH,), **{"missing": (), **more}
    )


def test_copies_and_similar_images_of_removed_records_are_found(tmp_path: Path) -> None:
    rows: list[tuple[str, str, str | None]] = [
        ("a", "A", PHASH),
        ("b", "B", NEAR),
        ("c", "C", FAR),
        ("d", "A", PHASH),
        ("e", "E", None),
    ]
    chosen = selection(dataset(tmp_path, rows), ("a",), ("A",))
    similar = _similar_records(chosen)
    assert similar == [
        SimilarRecord("d", "train", 0, is_same=True, sha256="A"),
        SimilarRecord("b", "train", 8, is_same=False, sha256="B"),
    ]
    # The image of "a" remains as that of "d", and the certificate states so.
    removed = _removed_records(chosen, similar)
    assert removed.keys_sha256 == (digest_of_key("a"),)
    assert (removed.images_sha256, removed.remaining_images_sha256) == ((), ("A",))


def test_the_certificate_states_keys_and_images_in_the_order_of_digests(tmp_path: Path) -> None:
    rows = [(key, key.upper(), PHASH) for key in "abcd"]
    removed = _removed_records(selection(dataset(tmp_path, rows), ("b", "a"), ("B", "A")), [])
    assert removed.keys_sha256 == tuple(sorted(map(digest_of_key, "ab")))
    assert (removed.images_sha256, removed.remaining_images_sha256) == (("A", "B"), ())


def test_keys_without_a_record_are_explained(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)])
    _check_keys(selection(of, ("a",), ()))
    missing = ("dropped.jpg", "rejected.jpg", "u", "v", "w", "x", "y")
    with pytest.raises(UsageError) as caught:
        _check_keys(selection(of, ("a",), (), missing=missing))
    assert str(caught.value) == (
        f"{of.directory}: has no record with 7 of the keys in --keys:\n"
        "  'dropped.jpg' (dropped: the record 'a.jpg' has its image)\n"
        "  'rejected.jpg' (rejected: it has no record)\n"
        "  'u'\n"
        "  'v'\n"
        "  'w'\n"
        "  and 2 more\n"
        "Correct them; keys are those in records/. Or add --allow_missing to pass over them."
    )
