"""Gives embedded images an address: a staging file that their bytes are put into, once.

The address comes with a hash of the bytes. It says what a reference stands for from the moment they
were read: when the image is decoded, hours later, its table may be another.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, cast

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from recordmill.schemas import layout
from recordmill.schemas.records import Embedded, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.transforms.storage.files import is_local

_HASH_BYTES = 16


def staged(
    rows: Iterator[Row | Embedded | Reject | SkippedInput], path: str
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields rows whose images all have addresses; one image in memory, no more.

    The file is whole once the last row was yielded.

    Args:
        rows: what a reader yields.
        path: a staging file of this attempt's own; not made if no image is embedded.
    """
    blob: StagedImages | None = None
    try:
        for row in rows:
            if not isinstance(row, Embedded):
                yield row
                continue
            blob = blob or StagedImages(path)
            yield replace(row.row, image=blob.add(row.data))
        if blob is not None:
            blob.commit()
            blob = None
    finally:
        if blob is not None:
            blob.abandon()


def staging_file(directory: str) -> str:
    """Returns where to stage the images of one part, another file for each attempt to read it.

    A second attempt may find another table than the first, which may still be writing.
    """
    return layout.join(directory, layout.STAGING, f"{uuid.uuid4().hex}.images")


class StagedImages:
    """A file of images, one after the other; whole once it is committed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        if is_local(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._stream: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed at the end
        else:  # an object is there once it is closed, and not before
            mode = CompressionTypes.UNCOMPRESSED
            self._stream = cast("BinaryIO", FileSystems.create(path, compression_type=mode))

    def add(self, data: bytes) -> Location:
        """Appends an image, and returns its address."""
        start, self._size = self._size, self._size + len(data)
        self._stream.write(data)
        content = hashlib.sha256(data).digest()[:_HASH_BYTES]
        return Location(self._path, start, self._size, staged=content)

    def commit(self) -> None:
        """Ends the file; in an object store, it exists from here on."""
        self._stream.close()

    def abandon(self) -> None:
        """Deletes the file, or what there is of it."""
        if is_local(self._path):
            self._stream.close()
            os.unlink(self._path)
