"""A metered file: the size and checksum of all bytes written to it."""

from __future__ import annotations

import io

import google_crc32c

from recordmill.transforms.shards.writer import MeteredFile


def test_size_and_checksum_include_all_bytes() -> None:
    stream = io.BytesIO()
    metered = MeteredFile(stream)

    assert [metered.write(chunk) for chunk in (b"1234", b"", memoryview(b"56789"))] == [4, 0, 5]
    metered.flush()

    assert stream.getvalue() == b"123456789"
    assert metered.size == 9
    assert metered.crc32c == 0xE3069283 == google_crc32c.value(b"123456789")


def test_chunks_are_written_together() -> None:
    stream = io.BytesIO()
    metered = MeteredFile(stream)
    chunk = bytes(range(256)) * 4  # 1 KiB

    written = []
    for _ in range(257):
        metered.write(chunk)
        written.append(len(stream.getvalue()))

    assert written == [0] * 255 + [2**18] * 2
    metered.flush()
    assert stream.getvalue() == chunk * 257
    assert metered.crc32c == google_crc32c.value(chunk * 257)


def test_closing_closes_the_file_below() -> None:
    stream = io.BytesIO()
    metered = MeteredFile(stream)
    assert not metered.closed

    metered.close()

    assert metered.closed
    assert stream.closed
