"""Deletes versions of a dataset, by the identity of their folders, never by their names alone.

Nothing is deleted if one of the versions is a link or has a file that recordmill has not written,
while a run writes a version, or if the versions have changed since they were listed. A file that
cannot be deleted is named; the deletion of other versions goes on.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from recordmill.pipelines.run.lock import lock
from recordmill.pipelines.run.target import Contents
from recordmill.pipelines.versions.listing import (
    Identity,
    Listing,
    Version,
    identities,
    identity,
    list_versions,
)
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.transforms.storage.files import delete, delete_files, is_local
from recordmill.transforms.storage.published import is_version

_LOCK = re.compile(r"\.(.+)\.lock")

# Deleted last, in this order: with either of them, the next run recognizes the folder as ours.
_MARKERS = (layout.RUN, layout.MANIFEST)

_SHOWN = 20

_REMEDIES = {
    errno.EROFS: "Mount its file system writable",
    errno.EACCES: "Let this user write in its folder",
    errno.EPERM: "Let this user delete it (see lsattr for the attributes i and a)",
}


@dataclass(frozen=True)
class Deletion:
    """The result of a deletion."""

    deleted: tuple[Version, ...]  # as they were before
    completed: tuple[str, ...]  # the folders of earlier deletions that had been interrupted
    problems: tuple[RecordmillError, ...]  # one for each version or file that remains


def delete_old(folder: str, keep: int, dry_run: bool = False) -> Deletion:
    """Deletes all but the newest `keep` readable versions of a dataset.

    Versions that share shards with a deleted one keep them: these are hard links, or copies. Raises
    UsageError if nothing may be deleted; see the module. Raises DatasetExists if a run is active.
    """
    listing = list_versions(folder)
    return delete_versions(listing, listing.versions[:-keep], dry_run)


def delete_versions(listing: Listing, old: Sequence[Version], dry_run: bool = False) -> Deletion:
    """Deletes listed versions, each from its commit marker on, and completes other deletions.

    Raises UsageError if nothing may be deleted; see the module. Raises DatasetExists if a run is
    active.
    """
    contents = [Contents(version.directory, version.manifest.name) for version in old]
    contents += listing.half_deleted
    problems: list[RecordmillError] = [*listing.problems]
    if not contents:
        return Deletion((), (), tuple(problems))
    names = [os.path.basename(each.directory) for each in contents]
    gone = set[str]()
    with ExitStack() as held, _errors_of(listing.folder):
        if is_local(listing.folder):
            _check_links(listing, names)
            if not dry_run:
                held.enter_context(_locked(listing.folder, names))
                _check_unchanged(listing)
        faults = [_check(each) for each in contents]  # all of them, before any is deleted
        for each, found in zip(contents, faults, strict=True):
            found = found or ([] if dry_run else _delete(each))
            problems += found
            gone.update(() if found else (each.directory,))
    deleted = tuple(version for version in old if version.directory in gone)
    completed = gone.difference(version.directory for version in deleted)
    return Deletion(deleted, tuple(sorted(completed)), tuple(problems))


def _check(contents: Contents) -> list[UsageError]:
    """Returns the obstacles to deleting a version; raises UsageError for a foreign file."""
    try:
        contents.check()
        contents.owned  # noqa: B018 - by the manifest, before the commit marker is gone
        names = contents.names
    except OSError as error:
        return [deletion_problem(error, contents.directory)]
    if not is_local(contents.directory):
        return []
    folders = {os.path.dirname(layout.join(contents.directory, name)) for name in names}
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
    return [
        deletion_problem(denied, folder) for folder in sorted(folders) if not _is_writable(folder)
    ]


def _is_writable(folder: str) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)


def _delete(contents: Contents) -> list[UsageError]:
    """Deletes the files of a version; returns a problem for each that remains, if any does.

    Without the marker, readers ignore the folder: they never see a part of a dataset.
    """
    names = [name for name in contents.names if contents.owned(name)]
    last = [name for name in _MARKERS if name in names]
    others = [name for name in names if name not in (layout.SUCCESS, *last)]
    for group in ([layout.SUCCESS], others, *([name] for name in last)):
        if problems := _delete_files(contents.directory, group):
            return problems
    return []


def _delete_files(directory: str, names: list[str]) -> list[UsageError]:
    try:
        delete_files(directory, names)
        return []
    except OSError as error:
        if not is_local(directory):
            return [deletion_problem(error, directory)]
    problems = []
    for path in (layout.join(directory, name) for name in names):
        try:
            delete(path)
        except OSError as error:
            problems.append(deletion_problem(error, path))
    if (more := len(problems) - _SHOWN) > 0:
        problems[_SHOWN:] = [UsageError(f"{directory}: {more:,} more files cannot be deleted.")]
    return problems


def deletion_problem(error: OSError, path: str) -> UsageError:
    """Returns the error for a file that cannot be deleted, with a remedy."""
    remedy = _REMEDIES.get(error.errno or 0, "Correct this")
    what = f"{error.filename or path}: cannot be deleted: {error.strerror or error}"
    return UsageError(f"{what}. {remedy}, and run the command again.")


def _check_links(listing: Listing, doomed: Collection[str]) -> None:
    """Rejects links among the versions, and versions that are one folder under two names."""
    folders = dict[Identity, str]()
    targets = {listing.identities.get(name) for name in doomed} - {None}
    with os.scandir(listing.folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_symlink():
            if is_version(entry.name) or _identity_of(entry.path) in targets:
                _reject_link(entry.path)
        elif is_version(entry.name):
            same = folders.setdefault(identity(os.stat(entry.path)), entry.name)
            if same != entry.name:
                raise UsageError(
                    f"{entry.path}: is the same folder as {same}; nothing is deleted. Unmount it."
                )
            if entry.name not in doomed:  # whose links are deleted, or rejected as foreign files
                _check_links_in(entry.path)


def _check_links_in(directory: str) -> None:
    """Rejects links in a version that stays: its shards may be those of another version."""
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            if os.path.islink(path := layout.join(folder, name)):
                _reject_link(path)


def _reject_link(path: str) -> None:
    raise UsageError(
        f"{path}: is a link to {os.path.realpath(path)}; nothing is deleted, because a version "
        "that stays may need it. Delete the link, or replace it by a copy."
    )


def _identity_of(path: str) -> Identity | None:
    try:
        return identity(os.stat(path))
    except OSError:  # it leads to no version that can be deleted
        return None


def _check_unchanged(listing: Listing) -> None:
    """Rejects versions that have changed between their listing and the locks."""
    if identities(listing.folder) != listing.identities:
        raise UsageError(
            f"{listing.folder}: its versions have changed meanwhile; nothing is deleted. "
            "Run the command again."
        )


@contextmanager
def _locked(folder: str, versions: Collection[str]) -> Iterator[None]:
    """Locks the given versions, and those that a run may be writing, which may link to them."""
    names = {f".{version}.lock" for version in versions}
    with os.scandir(folder) as entries:
        for entry in entries:
            found = _LOCK.fullmatch(entry.name)
            if found and is_version(found[1]) and entry.is_file(follow_symlinks=False):
                names.add(entry.name)
    with ExitStack() as held:
        for name in sorted(names):
            held.callback(lock(layout.join(folder, name), folder).release)
        yield


@contextmanager
def _errors_of(folder: str) -> Iterator[None]:
    """Turns an error of the file system, outside of the deletion of a file, into a usage error."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or folder}: cannot be read: {error.strerror or error}"
        raise UsageError(f"{what}. Nothing more is deleted.") from error
