"""Gives embedded images an address: a staging file that their bytes are put into, once."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, cast

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas import layout
from schemas.records import Aside, Embedded, Location, Row
from schemas.rejects import Reject
from schemas.tables import TablePart
from transforms.files import is_local


def staged(
    rows: Iterator[Row | Embedded | Reject | Aside], path: str
) -> Iterator[Row | Reject | Aside]:
    """Yields rows whose images all have addresses; one image in memory, no more.

    The file has its name once the last row was yielded; a part that is read again writes the same
    bytes under the same name, so that retries do no harm.

    Args:
        rows: what a reader yields.
        path: the staging file; not made if no image is embedded.
    """
    blob: _Blob | None = None
    try:
        for row in rows:
            if not isinstance(row, Embedded):
                yield row
                continue
            blob = blob or _Blob(path)
            yield replace(row.row, image=blob.add(row.data))
        if blob is not None:
            blob.commit()
            blob = None
    finally:
        if blob is not None:
            blob.abandon()


def staging_file(directory: str, part: TablePart) -> str:
    """Returns where the images of one part are staged, the same for each attempt."""
    name = repr((part.file.path, part.file.format, part.row_group, part.names))
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return layout.join(directory, layout.STAGING, f"{digest[:32]}.images")


class _Blob:
    """A file of images, one after the other."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        self._partial = f"{path}.{uuid.uuid4().hex}.partial" if is_local(path) else path
        if is_local(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._stream: BinaryIO = open(self._partial, "wb")  # noqa: SIM115 - closed at the end
        else:  # an object is there once it is closed, and not before
            mode = CompressionTypes.UNCOMPRESSED
            self._stream = cast("BinaryIO", FileSystems.create(path, compression_type=mode))

    def add(self, data: bytes) -> Location:
        start, self._size = self._size, self._size + len(data)
        self._stream.write(data)
        return Location(self._path, start, self._size)

    def commit(self) -> None:
        self._stream.close()
        if self._partial != self._path:
            os.replace(self._partial, self._path)

    def abandon(self) -> None:
        if self._partial != self._path:
            self._stream.close()
            os.unlink(self._partial)
