"""The formats of shards: TFRecord files, and how they are compressed.

The framing of records is the same in all of them: see `transforms/functional/records/framing.py`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Literal, TypeAlias, cast

# The values of --compression: the keys of `SHARD_FORMATS`.
Compression: TypeAlias = Literal["none", "gzip"]


@dataclass(frozen=True)
class ShardFormat:
    """The format of a shard file."""

    name: Compression
    beam: str  # the compression in Beam's `CompressionTypes`
    suffix: str = ""  # of the file's name, after the number of shards
    tensorflow: str | None = None  # the compression in `TFRecordDataset`, if it is read there
    media_types: tuple[str, ...] = ()  # of the compression
    in_tfds: bool = False  # whether TFDS reads it
    seekable: bool = False  # whether a record is read without all that precede it
    damage: tuple[type[Exception], ...] = ()  # errors of reading a truncated or damaged file
    signature: bytes = b""  # the first bytes of a compressed file
    # Returns the uncompressed content of a file; None if files are not compressed.
    unpack: Callable[[BinaryIO], BinaryIO] | None = None
    # The bytes of a file that its first record's header needs, behind the name in a gzip header and
    # Huffman tables.
    head_bytes: int = 4096
    packages: tuple[str, ...] = ()  # whose version can change the bytes of a file

    def open_stream(self, stored: BinaryIO) -> BinaryIO:
        """Returns the uncompressed stream of framed records in a file."""
        return self.unpack(stored) if self.unpack else stored


class _Gunzipped(gzip.GzipFile):
    """The decompressed content of a gzip file, which it closes as well."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(fileobj=stream)
        self._stream = stream

    def close(self) -> None:
        super().close()
        self._stream.close()


def _gunzip(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", _Gunzipped(stream))


SHARD_FORMATS: dict[str, ShardFormat] = {
    found.name: found
    for found in (
        ShardFormat("none", beam="uncompressed", tensorflow="", in_tfds=True, seekable=True),
        ShardFormat(
            "gzip",
            beam="gzip",
            suffix=".gz",
            tensorflow="GZIP",
            media_types=("application/gzip",),
            damage=(gzip.BadGzipFile, EOFError, zlib.error),
            signature=b"\x1f\x8b",
            unpack=_gunzip,
        ),
    )
}

# The suffix of a shard of any format, as a regular expression.
SUFFIX_PATTERN = f"(?:{'|'.join(re.escape(found.suffix) for found in SHARD_FORMATS.values())})"

# The errors of reading a damaged file of any format, for files whose format their content decides.
# Of one element for mypy, which does not unpack a tuple of any length in `except (OSError, *...)`.
DAMAGED_STREAM = cast(
    "tuple[type[Exception]]",
    tuple(error for found in SHARD_FORMATS.values() for error in found.damage),
)


def format_of_file(file: str) -> ShardFormat:
    """Returns the format of a shard, from its file name."""
    formats = SHARD_FORMATS.values()
    return max((f for f in formats if file.endswith(f.suffix)), key=lambda f: len(f.suffix))
