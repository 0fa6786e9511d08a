"""The checksums of a shard file are computed while it is read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import google_crc32c
import pytest

from recordmill.schemas.shard_format import ShardFormat
from recordmill.transforms.storage.shard_files import Digests, MeasuredShard, digests
from tests.shard_formats import every_compression, every_format, packed

CONTENT = bytes(range(256)) * 5000  # several chunks, the last of them shorter


def expected(stored: bytes, content: bytes) -> Digests:
    """Returns the checksums, computed from all bytes."""
    sha256, crc = hashlib.sha256(stored).hexdigest(), google_crc32c.value(content)
    return Digests(len(stored), sha256, len(content), crc)


@pytest.mark.parametrize("read", [0, 1, 300_000, len(CONTENT) - 1, len(CONTENT), -1])
@every_format
def test_digests_cover_the_whole_file_after_a_partial_read(
    tmp_path: Path, found: ShardFormat, read: int
) -> None:
    path, stored = tmp_path / f"shard{found.suffix}", packed(found, CONTENT)
    path.write_bytes(stored)
    with MeasuredShard(str(path)) as shard:
        assert shard.stream.read(read) == CONTENT[:read] + CONTENT[-1:] * (read == -1)
        assert shard.digests() == expected(stored, CONTENT)


def test_an_empty_file_has_digests(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert digests(str(tmp_path / "empty")) == expected(b"", b"")


@pytest.mark.parametrize("damage", ["truncated", "followed by other bytes"])
@every_compression
def test_a_damaged_stream_has_a_digest_of_the_stored_bytes_only(
    tmp_path: Path, found: ShardFormat, damage: str
) -> None:
    whole = packed(found, CONTENT)
    stored = whole[: len(whole) // 2] if damage == "truncated" else whole + b"other"
    path = tmp_path / f"shard{found.suffix}"
    path.write_bytes(stored)
    assert digests(str(path)) == Digests(
        len(stored), hashlib.sha256(stored).hexdigest(), stream=-1, crc32c=0
    )


@every_compression
def test_a_flipped_bit_changes_the_digest_of_the_content(
    tmp_path: Path, found: ShardFormat
) -> None:
    stored = bytearray(packed(found, CONTENT))
    stored[len(stored) // 2] ^= 1
    path = tmp_path / f"shard{found.suffix}"
    path.write_bytes(stored)
    assert digests(str(path)).crc32c != google_crc32c.value(CONTENT)


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
