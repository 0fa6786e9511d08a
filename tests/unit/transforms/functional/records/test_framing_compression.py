"""Tests that files are decompressed and recognized by content, whatever their names."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from recordmill.pipelines.record_files import _read_records
from recordmill.pipelines.verification import verify_schema
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.schemas.tables import Part, Projection
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.records.framing import (
    SNIFFED_BYTES,
    Frame,
    FrameError,
    _masked_crc32c,
    decompressed,
    is_tfrecord,
    read_frames,
    read_frames_or_errors,
    unpacker_of,
)
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.recognize import sources_of
from tests.images import jpeg
from tests.shard_formats import packed
from tests.unit.transforms.functional.sources.test_tfrecord import example, framed

RECORDS = framed(example(image=[jpeg(9, 7, 1)], label=[1], **{"image/filename": [b"a.jpg"]}))
# What compresses a file whose compression its content states: of shards, and of other tools.
PACK: dict[str, Callable[[bytes], bytes]] = {
    **{name: partial(packed, found) for name, found in SHARD_FORMATS.items()},
    "zlib": zlib.compress,
}


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("name", ["x.record-00000-of-00003", "train.records", "x", "x.csv"])
def test_records_are_recognized_by_content(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACK[kind](RECORDS))
    (file,) = sources_of(str(path), "auto", has_images=True).files
    assert (file.format, file.gzipped) == ("tfrecord", kind != "none")
    (row,) = FORMATS["tfrecord"].read(Part(file), Projection(("label",)))
    assert row.values == {"label": [1]}
    assert [record.features["label"] for record in _read_records(str(path))] == [[1]]
    found = verify_schema([str(path)], preset("image_classification"), "parse")
    assert (found.records, found.problems) == (1, [])


@pytest.mark.parametrize("length", [0x8B1F, 0x9C78, 0x0178])
def test_a_length_that_looks_like_a_signature_is_a_length(length: int) -> None:
    header = struct.pack("<Q", length)
    header += struct.pack("<I", _masked_crc32c(header))
    assert unpacker_of(header + bytes(100)) is None
    assert is_tfrecord(header + bytes(100))


def test_a_cut_stream_is_an_error_after_the_records_before() -> None:
    data = framed(*(bytes([i]) * 50_000 for i in range(9)))
    stream = decompressed(io.BytesIO(zlib.compress(data, 0)[:-1000]))
    assert stream.read(400_000) == data[:400_000]
    with pytest.raises(EOFError, match="within the compressed stream"):
        stream.read(60_000)


@pytest.mark.parametrize("kind", PACK)
def test_a_large_record_is_recognized_by_the_first_bytes_of_its_file(kind: str) -> None:
    stored = PACK[kind](framed(random.Random(1).randbytes(2**20)))
    assert is_tfrecord(stored[:SNIFFED_BYTES]), "raise `head_bytes` of the format"


@pytest.mark.parametrize("kind", sorted(PACK.keys() - {"none"}))
def test_a_record_far_larger_than_its_compressed_file_is_not_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = PACK[kind]
    monkeypatch.setattr(framing, "_RECORD_BYTES", 2**16)
    first, large = b"a" * 2**16, bytes(2**17)
    read = read_frames_or_errors(decompressed(io.BytesIO(pack(framed(first, large, b"b")))))
    frame, error = read
    assert isinstance(frame, Frame)
    assert isinstance(error, FrameError)
    assert frame.data == first
    assert "at most 65,536 bytes in a compressed file of this size, got 131,072" in str(error)
    # A file as it is has the bytes of its records.
    assert [one.data for one in read_frames(io.BytesIO(framed(first, large)))] == [first, large]
    noise = random.Random(1).randbytes(2**17)
    assert [one.data for one in read_frames(decompressed(io.BytesIO(pack(framed(noise)))))] == [
        noise
    ]
