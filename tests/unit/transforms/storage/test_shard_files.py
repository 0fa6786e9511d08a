"""The checksums of a shard file are computed while it is read."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import google_crc32c
import pytest

from recordmill.transforms.storage.shard_files import Digests, MeasuredShard, digests

CONTENT = bytes(range(256)) * 5000  # several chunks, the last of them shorter


def expected(stored: bytes, content: bytes) -> Digests:
    """Returns the checksums, computed from all bytes."""
    sha256, crc = hashlib.sha256(stored).hexdigest(), google_crc32c.value(content)
    return Digests(len(stored), sha256, len(content), crc)


@pytest.mark.parametrize("read", [0, 1, 300_000, len(CONTENT) - 1, len(CONTENT), -1])
@pytest.mark.parametrize("name", ["plain", "zipped.gz"])
def test_digests_cover_the_whole_file_after_a_partial_read(
    tmp_path: Path, name: str, read: int
) -> None:
    stored = gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT
    (tmp_path / name).write_bytes(stored)
    with MeasuredShard(str(tmp_path / name)) as shard:
        assert shard.stream.read(read) == CONTENT[:read] + CONTENT[-1:] * (read == -1)
        assert shard.digests() == expected(stored, CONTENT)


def test_an_empty_file_has_digests(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert digests(str(tmp_path / "empty")) == expected(b"", b"")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "followed by other bytes"])
def test_damaged_gzip_has_a_digest_of_the_stored_bytes_only(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(CONTENT)
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    stored = {"truncated": whole[:middle], "flipped": flipped}.get(damage, whole + b"other")
    path = tmp_path / "shard.gz"
    path.write_bytes(stored)
    assert digests(str(path)) == Digests(
        len(stored), hashlib.sha256(stored).hexdigest(), stream=-1, crc32c=0
    )


def test_an_unreadable_file_is_an_error_instead_of_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digests(str(tmp_path / "missing.gz"))
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(IsADirectoryError):
        digests(str(tmp_path / "folder.gz"))


def test_a_file_of_the_kernel_without_data_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with MeasuredShard(str(tmp_path / "a.tfrecord")) as shard:
        shard._stored._source = type("Silent", (), {"read": lambda *_: None})()
        with pytest.raises(BlockingIOError):
            shard.digests()
