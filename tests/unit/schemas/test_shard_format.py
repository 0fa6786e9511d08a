"""schemas/shard_format.py: the formats agree with the option, Beam and TensorFlow."""

from __future__ import annotations

import gzip
import io
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

formats = pytest.mark.parametrize("found", SHARD_FORMATS.values(), ids=SHARD_FORMATS)


def test_the_option_has_every_format() -> None:
    assert get_args(Compression) == tuple(SHARD_FORMATS)


@formats
def test_the_name_of_a_shard_states_its_format(found: ShardFormat) -> None:
    name = shard_name("birds", "train", 0, 1, found.name)
    assert is_shard("birds", name)
    assert format_of_file(name) is found


@formats
def test_beam_and_tensorflow_have_the_compression(found: ShardFormat) -> None:
    assert CompressionTypes.is_valid_compression_type(found.beam)
    if found.tensorflow is not None:
        tf.io.TFRecordOptions(found.tensorflow)


@formats
def test_only_a_file_that_is_not_compressed_is_seekable(found: ShardFormat) -> None:
    assert found.seekable == (found.unpack is None) == (not found.signature) == (not found.damage)


def test_a_cut_gzip_stream_is_damaged() -> None:
    stored = gzip.compress(bytes(range(256)) * 99)
    found = SHARD_FORMATS["gzip"]
    assert stored.startswith(found.signature)
    assert len(found.open_stream(io.BytesIO(stored)).read()) == 256 * 99
    with pytest.raises(DAMAGED_STREAM):
        found.open_stream(io.BytesIO(stored[:-20])).read()
