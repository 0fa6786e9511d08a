"""Copies embedded images to staging files and replaces them with references.

A reference includes a hash of the image's bytes. It identifies the image in fingerprints, because
the name of the staging file differs in each run.
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
    """Yields rows with references in place of embedded images; holds one image in memory.

    The staging file is complete after the last row.

    Args:
        rows: the rows from a reader.
        path: the staging file of this attempt; not created without embedded images.
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
    """Returns the path of a new staging file for the images of one source split.

    The path is unique for each attempt, because an earlier attempt may still be writing.
    """
    return layout.join(directory, layout.STAGING, f"{uuid.uuid4().hex}.images")


class StagedImages:
    """A staging file of concatenated images; complete once it is committed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        if is_local(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._stream: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed at the end
        else:  # an object in a store does not exist until it is closed
            mode = CompressionTypes.UNCOMPRESSED
            self._stream = cast("BinaryIO", FileSystems.create(path, compression_type=mode))

    def add(self, data: bytes) -> Location:
        """Appends an image and returns its byte range."""
        start, self._size = self._size, self._size + len(data)
        self._stream.write(data)
        content = hashlib.sha256(data).digest()[:_HASH_BYTES]
        return Location(self._path, start, self._size, staged=content)

    def commit(self) -> None:
        """Closes the file, which creates the object in a store."""
        self._stream.close()

    def abandon(self) -> None:
        """Deletes the incomplete file."""
        if is_local(self._path):
            self._stream.close()
            os.unlink(self._path)
