"""A metered file: the size and checksum of all bytes written to it."""

from __future__ import annotations

import io

import google_crc32c

from recordmill.transforms.shards.writer import MeteredFile


def test_size_and_checksum_include_all_bytes() -> None:
    stream = io.BytesIO()
    metered = MeteredFile(stream)

    assert [metered.write(chunk) for chunk in (b"1234", b"", memoryview(b"56789"))] == [4, 0, 5]

    assert stream.getvalue() == b"123456789"
    assert metered.size == 9
    assert metered.crc32c == 0xE3069283 == google_crc32c.value(b"123456789")


def test_closing_closes_the_file_below() -> None:
    stream = io.BytesIO()
    metered = MeteredFile(stream)
    assert not metered.closed

    metered.close()

    assert metered.closed
    assert stream.closed
