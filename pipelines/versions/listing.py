"""Lists the versions of a dataset: published ones, unreadable ones, and what runs have left.

    DIR/NAME/1.0.0/    with _SUCCESS: a published version; unreadable if its manifest cannot be read
    DIR/NAME/1.1.0/    without, but with run.json, manifest.json or a shard: unfinished; of a failed
                       run, or half-deleted if it was published before
    DIR/NAME/.1.1.0.run/   the files of a run that did not end

Other names are those of foreign files.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from recordmill.pipelines.run.run_record import PUBLISHED, read_record
from recordmill.pipelines.run.target import Contents
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.byte_ranges import unreadable
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import entries, exists, is_local
from recordmill.transforms.storage.published import (
    find_manifest,
    find_versions,
    is_version,
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

    @property
    def problems(self) -> list[VerificationFailed]:
        """The error of each unreadable version."""
        return list(self.unreadable.values())

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
        found = dict[str, tuple[Dataset, dict[tuple[object, ...], int]]]()
        for name in names:
            try:
                dataset = Dataset.open(layout.join(folder, name))
                found[name] = dataset, dict(_files(dataset))
            except VerificationFailed as error:
                faults[name] = error
            except OSError as error:
                faults[name] = unreadable(error.filename or layout.join(folder, name), error)
        unfinished = tuple(sorted(_unfinished(folder, set(names), faults), key=version_numbers))
        known = identities(folder) if is_local(folder) else {}
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error
    if not (found or faults or unfinished):
        raise UsageError(f"{folder}: has no published version; expected the folder DIR/NAME.")
    return Listing(folder, tuple(_versions(found, known)), faults, unfinished, known)


def _versions(
    found: Mapping[str, tuple[Dataset, dict[tuple[object, ...], int]]],
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


def _files(dataset: Dataset) -> Iterator[tuple[tuple[object, ...], int]]:
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
    """Returns the versions with files of runs, or of an interrupted deletion.

    `faults` are the versions that cannot be read; others are added.
    """
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
    """Returns the name of the dataset whose versions are in a folder."""
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


def identities(folder: str) -> dict[str, Identity]:
    """Returns the identity of each folder that is named like a version; links are followed."""
    found = dict[str, Identity]()
    for name in filter(is_version, os.listdir(folder)):
        with contextlib.suppress(FileNotFoundError):
            found[name] = identity(os.stat(layout.join(folder, name)))
    return found
