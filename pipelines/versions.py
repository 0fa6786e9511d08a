"""Lists the versions of a dataset, and deletes some by the identity of their folders.

    DIR/NAME/1.0.0/    with _SUCCESS: a published version; unreadable if its manifest cannot be read
    DIR/NAME/1.1.0/    without, but with run.json, manifest.json or a shard: unfinished; of a failed
                       run, or half-deleted if it was published before
    DIR/NAME/.1.1.0.run/   the files of a run that did not end

Other names are those of foreign files. Nothing is deleted if one of the versions is a link or has a
file that recordmill has not written, while a run writes a version, or if the versions have changed
since they were listed. A file that cannot be deleted is named; the deletion of others goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

from recordmill.pipelines.run.lock import lock, lock_folders
from recordmill.pipelines.run.run_record import PUBLISHED, read_record
from recordmill.pipelines.run.target import DATASET, Contents, Target
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import delete, delete_files, entries, exists, is_local
from recordmill.transforms.storage.published import (
    find_manifest,
    find_versions,
    is_version,
    unreadable,
    version_numbers,
)

_RUN = re.compile(r"\.(.+)\.run")

# (device, inode) of a folder or file.
Identity = tuple[int, int]


@dataclass(frozen=True)
class Version:
    """A published version of a dataset."""

    directory: str
    manifest: Manifest
    bytes: int
    own_bytes: int  # the size of the shards that no other version has; the rest are hard links

    @property
    def base(self) -> str | None:
        """The version that it was made from, or None."""
        return self.manifest.base.version if self.manifest.base else None


@dataclass(frozen=True)
class Listing:
    """The versions in a folder DIR/NAME, each group oldest first."""

    folder: str
    versions: tuple[Version, ...]
    unreadable: Mapping[str, VerificationFailed]  # by version
    unfinished: tuple[str, ...]  # files of failed or interrupted runs, half-deleted versions
    identities: Mapping[str, Identity]  # of the folder of each version; none in object stores

    @cached_property
    def half_deleted(self) -> list[Contents]:
        """The local versions that were published, but have lost their commit marker.

        A published version is not, even if it is unfinished: its run was killed while it cleaned
        up. In an object store, a run that is about to publish has such a folder as well.
        """
        if not is_local(self.folder):
            return []
        name = _dataset_name(self.folder)
        published = {os.path.basename(version.directory) for version in self.versions}
        names = (v for v in self.unfinished if v not in published and v not in self.unreadable)
        contents = (Contents(layout.join(self.folder, v), name) for v in names)
        return [c for c in contents if not c.is_published and _was_published(c.directory)]


def _was_published(directory: str) -> bool:
    """Returns whether a folder without a commit marker had one, by the files that mark it."""
    if record := read_record(directory):
        return record.state == PUBLISHED
    return find_manifest(directory)[0] is not None


def list_versions(folder: str) -> Listing:
    """Returns the versions of a dataset.

    Raises UsageError if it has none, not even an unreadable or unfinished one. Raises
    VerificationFailed if the folder cannot be read.
    """
    try:
        names, errors = find_versions(folder)
        faults = {name: unreadable(layout.join(folder, name), e) for name, e in errors.items()}
        found = dict[str, tuple[DatasetFolder, dict[tuple[object, ...], int]]]()
        for name in names:
            try:
                dataset = DatasetFolder.open(layout.join(folder, name))
                found[name] = dataset, dict(_files(dataset))
            except VerificationFailed as error:
                faults[name] = error
            except OSError as error:
                faults[name] = unreadable(error.filename or layout.join(folder, name), error)
        unfinished = tuple(sorted(_unfinished(folder, set(names), faults), key=version_numbers))
        known = _identities(folder) if is_local(folder) else {}
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error
    if not (found or faults or unfinished):
        raise UsageError(
            f"{folder}: has no published version; expected DIR/NAME, the folder of one dataset."
        )
    return Listing(folder, tuple(_versions(found, known)), faults, unfinished, known)


def _versions(
    found: Mapping[str, tuple[DatasetFolder, dict[tuple[object, ...], int]]],
    known: Mapping[str, Identity],
) -> Iterator[Version]:
    # A version that is a link to another one holds its files only once.
    distinct = {known.get(name, name): files for name, (_, files) in found.items()}
    holders = Counter(file for files in distinct.values() for file in files)
    for dataset, files in found.values():
        yield Version(
            dataset.directory,
            dataset.manifest,
            bytes=sum(files.values()),
            own_bytes=sum(size for file, size in files.items() if holders[file] == 1),
        )


def _files(dataset: DatasetFolder) -> Iterator[tuple[tuple[object, ...], int]]:
    """Yields ((device, inode), size in bytes) of each shard; without hard links, (path,)."""
    for shard in dataset.shards().values():
        path = dataset.path(shard.file)
        file: tuple[object, ...] = (path,)
        if is_local(path):
            with contextlib.suppress(FileNotFoundError):  # `recordmill verify` reports it
                file = identity(os.stat(path))
        yield file, shard.bytes


def _unfinished(
    folder: str, published: set[str], faults: dict[str, VerificationFailed]
) -> set[str]:
    """Returns the versions with files of runs or of deletions; adds unreadable ones to `faults`."""
    found = set[str]()
    for name in entries(folder)[0]:
        directory = layout.join(folder, name)
        if is_local(folder) and os.path.islink(directory):
            continue
        if (run := _RUN.fullmatch(name)) and is_version(run[1]):
            found.add(run[1])
        elif is_version(name) and name not in published and name not in faults:
            try:
                if _is_of_a_run(directory, _dataset_name(folder)):
                    found.add(name)
            except OSError as error:
                faults[name] = unreadable(error.filename or directory, error)
    return found


def _dataset_name(folder: str) -> str:
    is_named = layout.is_url(folder)  # on this machine, "." and ".." have no name
    return os.path.basename(folder.rstrip("/") if is_named else os.path.abspath(folder))


def _is_of_a_run(directory: str, name: str) -> bool:
    """Returns whether a folder without commit marker is marked by a run, or has a shard."""
    if not is_local(directory) and exists(layout.join(directory, layout.SUCCESS)):
        return False
    contents = Contents(directory, name)
    return contents.is_marked or any(layout.is_shard(name, file) for file in contents.names)


def identity(status: os.stat_result) -> Identity:
    """Returns the identity of a file, whatever its name."""
    return status.st_dev, status.st_ino


def _identities(folder: str) -> dict[str, Identity]:
    """Returns the identity of each folder that is named like a version; links are followed."""
    found = dict[str, Identity]()
    for name in filter(is_version, os.listdir(folder)):
        with contextlib.suppress(FileNotFoundError):
            found[name] = identity(os.stat(layout.join(folder, name)))
    return found


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
    problems: list[RecordmillError] = [*listing.unreadable.values()]
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
        return [_deletion_problem(error, contents.directory)]
    if not is_local(contents.directory):
        return []
    folders = {os.path.dirname(layout.join(contents.directory, name)) for name in names}
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
    effective = os.access in os.supports_effective_ids
    is_writable = partial(os.access, mode=os.W_OK | os.X_OK, effective_ids=effective)
    return [_deletion_problem(denied, f) for f in sorted(folders) if not is_writable(f)]


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
            return [_deletion_problem(error, directory)]
    problems = []
    for path in (layout.join(directory, name) for name in names):
        try:
            delete(path)
        except OSError as error:
            problems.append(_deletion_problem(error, path))
    if (more := len(problems) - _SHOWN) > 0:
        problems[_SHOWN:] = [UsageError(f"{directory}: {more:,} more files cannot be deleted.")]
    return problems


def _deletion_problem(error: OSError, path: str) -> UsageError:
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
    with contextlib.suppress(OSError):  # it leads to no version that can be deleted
        return identity(os.stat(path))
    return None


def _check_unchanged(listing: Listing) -> None:
    """Rejects versions that have changed between their listing and the locks."""
    if _identities(listing.folder) != listing.identities:
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
            held.enter_context(lock(layout.join(folder, name), folder))
        yield


@contextmanager
def _errors_of(folder: str) -> Iterator[None]:
    """Turns an error of the file system, outside of the deletion of a file, into a usage error."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or folder}: cannot be read: {error.strerror or error}"
        raise UsageError(f"{what}. Nothing more is deleted.") from error


def delete_unfinished(folder: str, versions: Sequence[str]) -> dict[str, RecordmillError]:
    """Deletes the files of failed or interrupted runs, with the shards to resume from.

    Drafts and copies of images have no index, so that they are not searched. In an object store,
    which has no locks, active runs are among them. Returns the error of each version with files
    that remain, such as foreign ones.
    """
    problems = dict[str, RecordmillError]()
    for version in versions:
        final, run = layout.join(folder, version), layout.run_folder(folder, version)
        target = Target(final, layout.join(run, DATASET), run)
        try:
            with lock_folders(target):
                _delete_run(target)
        except RecordmillError as error:
            problems[version] = error
        except OSError as error:
            problems[version] = _deletion_problem(error, run)
    return problems


def _delete_run(target: Target) -> None:
    final = target.contents()
    # In an object store, a dataset that replaces another is copied from the folder of its run.
    marker = layout.join(target.run, DATASET, layout.SUCCESS)
    is_copied = not is_local(target.final) and exists(marker)
    if target.needs_rollback or (is_copied and not final.is_published):
        raise UsageError(
            f"{target.run}: a run was killed while it replaced the dataset, which is still there. "
            "Run its command again."
        )
    target.check_run()
    if not is_local(target.final):  # which has no locks
        target.take_over()
    if not final.is_published:
        final.check()
        final.discard()
    target.clean_up()
