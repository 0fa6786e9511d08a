"""Finds published datasets: their versions, commit markers and manifests."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import from_json

from recordmill.schemas import layout
from recordmill.schemas.config import FORMAT_VERSION
from recordmill.schemas.document import first_fault
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage import files

_FORMAT = re.compile(rb'\s*\{\s*"format_version":\s*(\d{1,9})\b')
_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)

# Returns the content of a file, or None if it does not exist.
Read: TypeAlias = Callable[[str], "bytes | None"]


def read_file(path: str) -> bytes | None:
    """Returns the bytes of a file, or None if it does not exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return files.read(path)
    return None


def content(path: str, read: Read = read_file) -> bytes | None:
    """Returns the bytes of a file, if it exists; VerificationFailed if it cannot be read."""
    try:
        return read(path)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> VerificationFailed:
    """Returns the error for a file of a dataset that is missing, or cannot be read."""
    if isinstance(error, FileNotFoundError):
        return VerificationFailed(f"{path}: is missing. Restore it from a backup.")
    what = str(error.strerror or error).rstrip(".")
    return VerificationFailed(f"{path}: cannot be read: {what}. Restore it from a backup.")


def newest_version(
    path: str | os.PathLike[str],
    read: Read = read_file,
    list_published: Callable[[str], Iterable[str]] | None = None,
) -> str:
    """Returns the folder of the newest version in DIR/NAME; other paths, such as a version, as is.

    Raises VerificationFailed if the folder, or a version that may be the newest, cannot be read.
    """
    folder = os.fspath(path)
    if content(layout.join(folder, layout.SUCCESS), read) is not None:
        return folder
    versions, faults = find_versions(folder, list_published)
    if not (versions or faults):
        return folder
    newest = layout.join(folder, name := max((*versions, *faults), key=version_numbers))
    if name in faults:  # an older version in its place would be another dataset
        raise unreadable(newest, faults[name])
    return newest


def published_versions(folder: str) -> list[str]:
    """Returns the versions that are published in a folder DIR/NAME, in the order of semver.

    Raises VerificationFailed if the folder, or one of the versions, cannot be read.
    """
    versions, faults = find_versions(folder)
    for version, error in faults.items():
        raise unreadable(layout.join(folder, version), error)
    return versions


def find_versions(
    folder: str, list_published: Callable[[str], Iterable[str]] | None = None
) -> tuple[list[str], Mapping[str, OSError]]:
    """Returns the published versions in a folder DIR/NAME, and the error of each unreadable one.

    Both are in the order of semver. Raises VerificationFailed if the folder cannot be read.
    """
    faults = dict[str, OSError]()
    try:
        names = list_published(folder) if list_published else _list_published(folder, faults)
    except (FileNotFoundError, NotADirectoryError):
        return [], {}
    except OSError as error:
        raise unreadable(folder, error) from error
    versions = sorted(filter(is_version, names), key=version_numbers)
    return versions, {version: faults[version] for version in sorted(faults, key=version_numbers)}


def is_version(name: str) -> bool:
    """Returns whether a name is that of a version, X.Y.Z.

    >>> [is_version(name) for name in ("1.0.0", "1.0", "1.0.0-draft", ".1.0.0.run")]
    [True, False, False, False]
    """
    return bool(_VERSION.fullmatch(name))


def version_numbers(version: str) -> list[int]:
    """Returns the sort key of a version.

    >>> sorted(["1.10.0", "1.9.0"], key=version_numbers)
    ['1.9.0', '1.10.0']
    """
    return [int(number) for number in version.split(".")]


def _list_published(folder: str, faults: dict[str, OSError]) -> list[str]:
    """Returns the names of the folders with a commit marker; adds versions that it cannot read."""
    if layout.is_url(folder):
        # One listing in place of a request per version.
        markers = files.files_below(folder, f"*/{layout.SUCCESS}")
        return [marker.partition("/")[0] for marker in markers]
    names = []
    for name in filter(is_version, os.listdir(folder)):
        try:
            if stat.S_ISREG(os.stat(layout.join(folder, name, layout.SUCCESS)).st_mode):
                names.append(name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:  # such as EACCES or ESTALE: it may be published
            faults[name] = error
    return names


def read_manifest(folder: str, read: Read = read_file) -> tuple[Manifest, str, bool]:
    """Returns the manifest of a dataset, its SHA-256, and whether the commit marker has that.

    Raises VerificationFailed if the commit marker is missing, or the manifest cannot be read.
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
        stated = int(found[1]) if (found := _FORMAT.match(data)) else FORMAT_VERSION
        writer = "recordmill 0.1.0" if stated == 1 else "a newer recordmill"
        what = f"was written by {writer}, whose datasets this version does not read"
        if stated == FORMAT_VERSION:
            what = f"is not a manifest that this version reads: {first_fault(error)}"
        remedy = "Update recordmill" if stated > FORMAT_VERSION else "Convert again"
        raise VerificationFailed(f"{path}: {what}. {remedy}.") from error
    expected = commit_marker(data)
    return manifest, expected.decode().strip(), marker == expected


def _hint_at_versions(folder: str) -> str:
    """Returns the end of a message with the versions in a folder, or beside a missing version."""
    if versions := find_versions(folder)[0]:
        return f". It has the versions {', '.join(versions)}"
    if not is_version(os.path.basename(folder)):
        return ""  # the folder above may be a whole bucket
    others, _ = find_versions(layout.versions_folder(folder))
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
    """Parses a manifest without garbage collection, which would scan up to a million objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        if (found := _without_needed_names(data)) is not None:
            return Manifest.model_validate(found)
        return Manifest.model_validate_json(data)
    finally:
        if collects:
            gc.enable()


def _without_needed_names(data: bytes) -> dict[str, Any] | None:
    """Returns the document without most unknown fields if it has any, or lacks one; else None.

    From JSON, the error for each such field would keep a copy of the whole document.
    """
    try:
        found = from_json(data)
    except ValueError:
        return None  # validation describes it
    known = Manifest.model_fields
    needed = {name for name, field in known.items() if field.is_required()}
    if not isinstance(found, dict) or needed <= found.keys() <= known.keys():
        return None
    unknown = [name for name in found if name not in known][:1]
    return {name: found[name] for name in (*known, *unknown) if name in found}


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
