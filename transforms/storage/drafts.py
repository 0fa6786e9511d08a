"""Drafts: files that get their final names when they are complete.

An engine may have a shard written more than once: it retries failed work, repeats slow work on
another worker, and replaces workers that it presumes dead. Only one attempt gives its draft the
final name. The drafts of all others must have the same bytes, and are discarded.

Object stores cannot rename. There, a draft is a file on the worker's disk, uploaded by one PUT on
condition that the key is free (`If-None-Match: *`; on Google Cloud, generation 0) or holds the
version to be replaced (`If-Match`). In file systems, a draft is renamed after a check that the name
is free; between the check and the rename, only an attempt with the same bytes can take it.

An attempt can outlive its run. On a local file system, a run publishes by renaming its folder: such
an attempt finds no folder, creates none, and fails.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import uuid
from functools import partial
from typing import Any, BinaryIO

from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.shard_files import digests
from recordmill.transforms.storage.stores.objects import parse, put
from recordmill.transforms.storage.stores.store import TransientError, Version, persist

# The maximum of S3 for one PUT; of Azure it is a little less, of Google Cloud far more.
_MAX_OBJECT_BYTES = 5 * 2**30


class Draft:
    """A file that is being written.

    `is_late`: whether another attempt had given the name to the same bytes, once committed.
    """

    is_late = False

    def __init__(self, directory: str, name: str) -> None:
        """Chooses the path of a new draft; nothing is created."""
        self._final = layout.join(directory, name)
        self._is_object = not files.is_local(directory) and parse(self._final) is not None
        folder = layout.join(directory, layout.STAGING)
        if self._is_object:
            # Deleted with this object, also where an attempt fails.
            self._disk = tempfile.TemporaryDirectory(prefix="recordmill-")
            folder = self._disk.name
        self.path = f"{folder}/{uuid.uuid4().hex}.partial"

    def open(self) -> BinaryIO:
        """Opens the file for writing.

        Raises RecordmillError if the folder of a local run was renamed or deleted.
        """
        try:
            return files.create(self.path)
        except FileNotFoundError as error:
            raise ended_run(self._final) from error

    @property
    def size(self) -> int:
        """The bytes written, once the file is closed."""
        return files.file_size(self.path) or 0

    def commit(self, replaced: Version | None = None, checked: bool = False) -> Version:
        """Gives the file its final name, and returns the version that is there now.

        `replaced` is the version of an earlier run that is to be replaced. `checked`: whether to
        compare the object with the file, if nothing else does. Raises RecordmillError if a file
        with other bytes has that name, or the folder of a local run was renamed or deleted.
        """
        try:
            if self._is_object:
                sent = persist(partial(self._put, replaced, checked))
                os.unlink(self.path)
                return sent
            if replaced is None and files.exists(self._final):
                raise FileExistsError
            files.move(self.path, self._final)
        except FileExistsError:
            self._check_same()
            self.is_late = True
            files.delete(self.path)
            return files.version(self._final)
        except FileNotFoundError as error:
            if self._is_object:
                raise
            raise ended_run(self._final) from error
        return {}

    def _put(self, replaced: Version | None, checked: bool) -> Version:
        sent = self._sent("create" if replaced is None else replaced or "overwrite")
        if checked and digests(self._final).sha256 != digests(self.path).sha256:
            raise TransientError(f"{self._final}: {files.OTHER_BYTES}")
        return sent

    def _sent(self, mode: Any) -> Version:
        if not self.size:  # which cannot be mapped
            return put(self._final, b"", mode)
        if self.size > _MAX_OBJECT_BYTES:
            raise RecordmillError(
                f"{self._final}: has {self.size:,} bytes; expected at most {_MAX_OBJECT_BYTES:,}, "
                "the maximum of one PUT. Raise --num_shards, or reduce --shard_size."
            )
        with (
            open(self.path, "rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            return put(self._final, mapped, mode)

    def _check_same(self) -> None:
        own, other = digests(self.path).sha256, digests(self._final).sha256
        if own != other:
            raise RecordmillError(
                f"{self._final}: another attempt has written it with other bytes; expected "
                f"sha256 {own}, got {other}. Run again: unfinished shards are written again."
            )


def ended_run(path: str) -> RecordmillError:
    """Returns the error for a file that cannot be written because its run has ended."""
    return RecordmillError(
        f"{path}: not written, because the run's folder was renamed or deleted; expected the run "
        "to be active. Run again if it has not published."
    )
