"""Finds a published dataset by its folder: what everything that reads one begins with.

Beam is loaded only for object stores, so that a reader's workers start fast.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.errors import ProofError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.shard_files import open_stored

Read = Callable[[str], bytes | None]
"""Returns a file's bytes, or None if there is no such file."""


def published_manifest(directory: str, read: Read | None = None) -> Manifest:
    """Returns the manifest of a published dataset.

    Args:
        directory: DIR/NAME/VERSION.
        read: reads a file, in place of `read_file`.

    Raises:
        ProofError: if no dataset is published there, or its manifest is not the published one.
    """
    manifest, sealed = sealed_manifest(directory, read or read_file)
    if not sealed:
        raise ProofError(
            f"{layout.join(directory, layout.MANIFEST)}: is not the one that {layout.SUCCESS} "
            "seals; convert anew, or restore it from a copy"
        )
    return manifest


def sealed_manifest(directory: str, read: Read) -> tuple[Manifest, bool]:
    """Returns a dataset's manifest, and whether it is the one that the commit mark seals.

    Raises:
        ProofError: if no dataset is published there, or it has no manifest.
    """
    mark = _readable(layout.join(directory, layout.SUCCESS), read)
    if mark is None:
        raise ProofError(
            f"{directory}: no published dataset, it has no {layout.SUCCESS}; "
            "expected DIR/NAME/VERSION of one that recordmill convert has published"
        )
    path = layout.join(directory, layout.MANIFEST)
    data = _readable(path, read)
    if data is None:
        raise ProofError(f"{path}: is missing; convert anew, or restore it from a copy")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = " > ".join(str(part) for part in first["loc"]) or "the file"
        what = f"is no manifest that this version reads: at {place}: {first['msg']}"
        raise ProofError(f"{path}: {what}; convert anew") from error
    return manifest, mark == seal_of(data)


def _readable(path: str, read: Read) -> bytes | None:
    try:
        return read(path)
    except OSError as error:
        what = error.strerror or error
        raise ProofError(f"{path}: cannot be read: {what}; restore it from a copy") from error


def find_manifest(directory: str) -> tuple[Manifest | None, bool]:
    """Returns the manifest in a folder, if there is one, and whether a commit mark seals it.

    One that is sealed and not read here is of another version of this program.
    """
    data = read_file(layout.join(directory, layout.MANIFEST))
    if data is None:
        return None, False
    sealed = read_file(layout.join(directory, layout.SUCCESS)) == seal_of(data)
    with contextlib.suppress(ValidationError):
        return Manifest.model_validate_json(data), sealed
    return None, sealed


def in_place(directory: str) -> str:
    """Returns where a dataset is found: its folder, or where a killed run has put it aside.

    Where two folders cannot be exchanged, a run that replaces a dataset renames the old one first.
    """
    if layout.is_url(directory) or os.path.lexists(directory):
        return directory
    parent, version = os.path.split(os.path.abspath(directory))
    aside = layout.replaced_folder(layout.run_folder(parent, version))
    return aside if os.path.isdir(aside) else directory


def seal_of(manifest: bytes) -> bytes:
    """Returns the whole content of the commit mark that seals a manifest."""
    return hashlib.sha256(manifest).hexdigest().encode() + b"\n"


def read_file(path: str) -> bytes | None:
    """Returns a file's bytes, or None if there is no such file."""
    if layout.is_url(path):
        from recordmill.transforms.storage.files import exists, open_binary  # Beam's file systems

        if not exists(path):
            return None
        with open_binary(path) as stream:
            return stream.read()
    try:
        with open_stored(path) as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
