"""schemas/shard_format.py: what the declaration of every format promises."""

from __future__ import annotations

import io
import random
import re
import tracemalloc
from pathlib import Path
from typing import get_args

import pytest
import tensorflow as tf
from apache_beam.io.filesystem import CompressionTypes

from recordmill.schemas.layout import is_shard, shard_name
from recordmill.schemas.shard_format import (
    DAMAGED_STREAM,
    SHARD_FORMATS,
    Compression,
    ShardFormat,
    format_of_file,
)
from tests.shard_formats import every_compression, every_format, packed

ROOT = Path(__file__).parents[3]
CONTENT = random.Random(1).randbytes(2**17) + bytes(2**17)


def test_the_option_has_every_format() -> None:
    assert get_args(Compression) == tuple(SHARD_FORMATS)


@every_format
def test_the_name_of_a_shard_states_its_format(found: ShardFormat) -> None:
    name = shard_name("birds", "train", 0, 1, found.name)
    assert is_shard("birds", name)
    assert format_of_file(name) is found


@every_format
def test_beam_and_tensorflow_have_the_compression(found: ShardFormat) -> None:
    assert CompressionTypes.is_valid_compression_type(found.beam)
    if found.tensorflow is not None:
        tf.io.TFRecordOptions(found.tensorflow)


@every_format
def test_only_a_file_that_is_not_compressed_is_seekable(found: ShardFormat) -> None:
    assert found.seekable == (found.unpack is None) == (not found.signature) == (not found.damage)


@every_format
@pytest.mark.parametrize("project", [ROOT, ROOT / "reader"], ids=["recordmill", "reader"])
def test_what_a_format_needs_is_required(found: ShardFormat, project: Path) -> None:
    text = (project / "pyproject.toml").read_text("utf-8")
    listed = text.partition("\ndependencies = [")[2].partition("\n]")[0]
    assert {*found.packages} <= set(re.findall(r'^ +"([\w-]+)', listed, re.M))


@every_format
def test_what_beam_writes_is_read_in_pieces_and_from_any_byte(found: ShardFormat) -> None:
    stored = packed(found, CONTENT)
    assert stored.startswith(found.signature)
    with found.open_stream(io.BytesIO(stored)) as stream:
        assert b"".join(stream.read(9999) for _ in range(27)) == CONTENT
        assert stream.read(1) == b""
        for start in (2**17, 3, len(CONTENT) - 1):
            assert stream.seek(start) == start
            assert stream.read(70_000) == CONTENT[start : start + 70_000]


@every_compression
@pytest.mark.parametrize("content", [CONTENT[-70_000:], CONTENT[:9999], b"x"], ids=len)
def test_a_file_that_is_cut_at_any_byte_is_damaged(found: ShardFormat, content: bytes) -> None:
    stored = packed(found, content)
    for cut in {*range(1, len(stored))[:99], *range(1, len(stored))[-99:]}:
        with pytest.raises(DAMAGED_STREAM), found.open_stream(io.BytesIO(stored[:cut])) as stream:
            stream.read()


@every_compression
def test_bytes_that_follow_the_compressed_stream_are_damage(found: ShardFormat) -> None:
    with pytest.raises(DAMAGED_STREAM):
        found.open_stream(io.BytesIO(packed(found, CONTENT) + b"other")).read()


@every_compression
def test_not_much_more_is_decompressed_than_is_read(found: ShardFormat) -> None:
    bomb = found.open_stream(io.BytesIO(packed(found, bytes(2**26))))
    tracemalloc.start()
    try:
        assert bomb.read(9) == bytes(9)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
