"""Finds published datasets: their versions, commit markers and manifests."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.byte_ranges import unreadable
from recordmill.transforms.storage.shard_files import read_stored, remote_files

_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)

# Returns the content of a file, or None if it does not exist.
Read: TypeAlias = Callable[[str], "bytes | None"]


def read_file(path: str) -> bytes | None:
    """Returns the bytes of a file, or None if it does not exist.

    Raises:
        OSError: if the file cannot be read.
    """
    try:
        return read_stored(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def content(path: str, read: Read = read_file) -> bytes | None:
    """Returns the bytes of a file, or None if it does not exist.

    Args:
        path: the file.
        read: a function that does so.

    Raises:
        VerificationFailed: if the file cannot be read.
    """
    try:
        return read(path)
    except OSError as error:
        raise unreadable(path, error) from error


def newest_version(
    path: str | os.PathLike[str],
    read: Read = read_file,
    list_published: Callable[[str], Iterable[str]] | None = None,
) -> str:
    """Returns the folder of the newest version in DIR/NAME; other paths, such as a version, as is.

    Args:
        path: the folder.
        read: returns the content of a file, or None if it does not exist.
        list_published: returns the names of the folders in a folder that have a commit marker.

    Raises:
        VerificationFailed: if the folder cannot be read.
    """
    folder = os.fspath(path)
    if content(layout.join(folder, layout.SUCCESS), read) is not None:
        return folder
    versions = published_versions(folder, list_published)
    return layout.join(folder, versions[-1]) if versions else folder


def published_versions(
    folder: str, list_published: Callable[[str], Iterable[str]] | None = None
) -> list[str]:
    """Returns the versions that are published in a folder DIR/NAME, in the order of semver.

    Args:
        folder: the folder.
        list_published: as for `newest_version`.

    Raises:
        VerificationFailed: if the folder cannot be read.
    """
    try:
        names = (list_published or _list_published)(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(folder, error) from error
    versions = [name for name in names if _VERSION.fullmatch(name)]
    return sorted(versions, key=lambda version: [int(number) for number in version.split(".")])


def _list_published(folder: str) -> list[str]:
    if layout.is_url(folder):
        # One listing in place of a request per version.
        markers = remote_files(folder).files_below(folder, f"*/{layout.SUCCESS}")
        return [marker.partition("/")[0] for marker in markers]
    names = os.listdir(folder)
    return [name for name in names if os.path.isfile(layout.join(folder, name, layout.SUCCESS))]


def read_manifest(folder: str, read: Read = read_file) -> tuple[Manifest, str, bool]:
    """Returns the manifest of a dataset, its SHA-256, and whether the commit marker has that.

    Args:
        folder: the dataset's folder, DIR/NAME/VERSION.
        read: returns the content of a file, or None if it does not exist.

    Raises:
        VerificationFailed: if the commit marker is missing, or the manifest cannot be read.
    """
    # Written after all other files: without it, the folder is not a dataset.
    marker = content(layout.join(folder, layout.SUCCESS), read)
    if marker is None:
        raise VerificationFailed(
            f"{folder}: not a published dataset: it has no {layout.SUCCESS}; expected a folder "
            "DIR/NAME/VERSION that recordmill convert has published"
            f"{_hint_at_versions(folder)}"
        )
    path = layout.join(folder, layout.MANIFEST)
    data = content(path, read)
    if data is None:
        raise VerificationFailed(f"{path}: is missing. Convert again, or restore it from a backup.")
    try:
        manifest = _parse_manifest(data)
    except ValidationError as error:
        first = error.errors()[0]
        location = " > ".join(str(part) for part in first["loc"]) or "the file"
        what = f"is not a manifest that this version reads: at {location}: {first['msg']}"
        raise VerificationFailed(f"{path}: {what}. Convert again.") from error
    expected = commit_marker(data)
    return manifest, expected.decode().strip(), marker == expected


def _hint_at_versions(folder: str) -> str:
    """Returns the end of a message with the versions in a folder, or beside a missing version."""
    if versions := published_versions(folder):
        return f". It has the versions {', '.join(versions)}"
    if not _VERSION.fullmatch(os.path.basename(folder)):
        return ""  # the folder above may be a whole bucket
    others = published_versions(layout.versions_folder(folder))
    return f". The newest published version is {others[-1]}" if others else ""


def find_manifest(directory: str) -> tuple[Manifest | None, bool]:
    """Returns the manifest in a folder, or None, and whether it is committed.

    A committed manifest that cannot be parsed is from another version of recordmill.
    """
    data = read_file(layout.join(directory, layout.MANIFEST))
    if data is None:
        return None, False
    is_committed = read_file(layout.join(directory, layout.SUCCESS)) == commit_marker(data)
    with contextlib.suppress(ValidationError):
        return _parse_manifest(data), is_committed
    return None, is_committed


def _parse_manifest(data: bytes) -> Manifest:
    """Parses a manifest without garbage collection, which would scan up to a million objects.

    Raises:
        ValidationError: if it is not valid.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return Manifest.model_validate_json(data)
    finally:
        if collects:
            gc.enable()


def current_folder(directory: str) -> str:
    """Returns the folder of a dataset, or the one that an interrupted run has moved it to.

    Without atomic swaps, a run that replaces a dataset renames the old one first.
    """
    if layout.is_url(directory) or os.path.lexists(directory):
        return directory
    parent, version = os.path.split(os.path.abspath(directory))
    replaced = layout.replaced_folder(layout.run_folder(parent, version))
    return replaced if os.path.isdir(replaced) else directory


def commit_marker(manifest: bytes) -> bytes:
    """Returns the content of the commit marker: the manifest checksum and a line break."""
    return hashlib.sha256(manifest).hexdigest().encode() + b"\n"
