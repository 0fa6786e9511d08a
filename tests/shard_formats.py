"""Shards of every format, compressed and decompressed by Beam, which shares no code with ours."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems

from recordmill.schemas.shard_format import SHARD_FORMATS, ShardFormat

COMPRESSED = {name: found for name, found in SHARD_FORMATS.items() if found.unpack}

every_format = pytest.mark.parametrize("found", SHARD_FORMATS.values(), ids=SHARD_FORMATS)
every_compression = pytest.mark.parametrize("found", COMPRESSED.values(), ids=COMPRESSED)


def packed(found: ShardFormat, data: bytes) -> bytes:
    """Returns the content of a file, as the sink of shards writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "packed")
        with FileSystems.create(str(path), compression_type=found.beam) as stream:
            stream.write(data)
        return path.read_bytes()


def unpacked(found: ShardFormat, stored: bytes) -> bytes:
    """Returns the uncompressed content of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "packed")
        path.write_bytes(stored)
        with FileSystems.open(str(path), compression_type=found.beam) as stream:
            return bytes(stream.read(2**30))
