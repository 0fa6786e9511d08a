"""The files of one shard: their names, checksums and streams."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

import google_crc32c

from recordmill.schemas.layout import is_url
from recordmill.transforms.storage.local_files import open_regular

DAMAGED_GZIP = (OSError, EOFError, zlib.error)
"""Errors of reading a truncated or damaged gzip stream."""

_CHUNK_BYTES = 2**18


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard.

    Attributes:
        directory: the dataset's folder.
        split: the shard's split.
        index: the shard's number within the split.
        file: the shard, relative to the folder.
        records: the record index, relative to the folder; "" if there is none.
    """

    directory: str
    split: str
    index: int
    file: str
    records: str


@dataclass(frozen=True)
class Digests:
    """Checksums and sizes of a shard file.

    Attributes:
        size: bytes of the file.
        sha256: hex digest of the file.
        stream: bytes of the records and their framing, uncompressed; -1 if they cannot be read.
        crc32c: checksum of the uncompressed stream.
    """

    size: int
    sha256: str
    stream: int
    crc32c: int


def digests(path: str) -> Digests:
    """Returns the checksums of a shard file, in one pass unless it is compressed."""
    digest, size, crc = hashlib.sha256(), 0, 0
    with open_stored(path) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            crc = google_crc32c.extend(crc, chunk)
            size += len(chunk)
    length, crc = stream_checksum(path) if compression_of(path) else (size, crc)
    return Digests(size, digest.hexdigest(), length, crc)


def stream_checksum(path: str) -> tuple[int, int]:
    """Returns the size and crc32c of a file's uncompressed stream; (-1, 0) of damaged gzip."""
    size = crc = 0
    try:
        with uncompressed(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                crc = google_crc32c.extend(crc, chunk)
                size += len(chunk)
    except DAMAGED_GZIP:
        if not compression_of(path):
            raise
        return -1, 0  # reading it record by record shows where
    return size, crc


def compression_of(path: str) -> str:
    """Returns a file's compression as TensorFlow names it, from the file's name."""
    return "GZIP" if path.endswith(".gz") else ""


def uncompressed(path: str) -> BinaryIO:
    """Opens the uncompressed stream of framed records."""
    stream = open_stored(path)
    return cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if compression_of(path) else stream


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yields a local path of a file for TensorFlow, which cannot open all object stores."""
    if not is_url(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        copy = os.path.join(folder, path.rpartition("/")[2])
        with open_stored(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        yield copy


def open_stored(path: str) -> BinaryIO:
    """Opens a file for reading as it is stored."""
    if not is_url(path):
        return open_regular(path)
    from recordmill.transforms.storage.files import (
        open_binary,  # loads Beam, which readers of local files need not
    )

    return open_binary(path)
