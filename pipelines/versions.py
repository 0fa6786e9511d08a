"""The versions of a dataset: what each was made from, what it shares, and deletion of old ones."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from recordmill.pipelines.run.lock import Lock, lock
from recordmill.pipelines.run.run_record import PUBLISHED, RunRecord, read_record
from recordmill.pipelines.run.target import Contents
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import delete, entries, exists, is_local
from recordmill.transforms.storage.published import published_versions

# The suffix of the folder of a run, which is beside the version that it writes.
_RUN = ".run"

# Concurrent reads of indexes: they wait for the file system or store, not for a core.
_THREADS = 16


@dataclass(frozen=True)
class Version:
    """A published version of a dataset.

    Attributes:
        directory: its folder.
        manifest: its manifest.
        bytes: the size of its shards.
        own_bytes: the size of the shards that no other version has; the rest are hard links.
    """

    directory: str
    manifest: Manifest
    bytes: int
    own_bytes: int

    @property
    def base(self) -> str | None:
        """The version that it was made from, or None."""
        return self.manifest.base.version if self.manifest.base else None


def list_versions(folder: str) -> list[Version]:
    """Returns the published versions of a dataset, oldest first.

    Args:
        folder: the folder of all versions, DIR/NAME.

    Raises:
        UsageError: if it has no published version.
        VerificationFailed: if a manifest cannot be read, or was changed.
    """
    names = published_versions(folder)
    if not names:
        raise UsageError(f"{folder}: has no published version; expected the folder DIR/NAME.")
    datasets = [Dataset.open(layout.join(folder, name)) for name in names]
    files = [dict(_files(dataset)) for dataset in datasets]
    holders = Counter(file for of_version in files for file in of_version)
    return [
        Version(
            dataset.directory,
            dataset.manifest,
            bytes=sum(of_version.values()),
            own_bytes=sum(size for file, size in of_version.items() if holders[file] == 1),
        )
        for dataset, of_version in zip(datasets, files, strict=True)
    ]


def _files(dataset: Dataset) -> Iterator[tuple[tuple[object, ...], int]]:
    """Yields ((device, inode), size in bytes) of each shard; without hard links, (path,)."""
    for shard in dataset.shards().values():
        path = dataset.path(shard.file)
        file: tuple[object, ...] = (path,)
        if is_local(path):
            with contextlib.suppress(FileNotFoundError):  # `recordmill verify` reports it
                found = os.stat(path)
                file = (found.st_dev, found.st_ino)
        yield file, shard.bytes


def delete_versions(folder: str, keep: int, dry_run: bool = False) -> list[Version]:
    """Deletes all but the newest versions of a dataset.

    Versions that share shards with a deleted one keep them: these are hard links, or copies.
    Nothing is deleted if one of the folders contains a file that recordmill has not written, or
    while a run writes a version of the dataset.

    Args:
        folder: the folder of all versions, DIR/NAME.
        keep: number of versions to keep, at least 1.
        dry_run: whether to delete nothing.

    Returns:
        The deleted versions, as they were before, oldest first.

    Raises:
        UsageError: if a folder contains a foreign file.
        DatasetExists: if a run is active.
    """
    old = list_versions(folder)[:-keep]
    delete_all(folder, old, dry_run)
    return old


def delete_all(folder: str, old: Sequence[Version], dry_run: bool = False) -> None:
    """Deletes versions of a dataset, each from its commit marker on.

    Deletions of other versions that were interrupted are completed.

    Args:
        folder: the folder of all versions, DIR/NAME.
        old: the versions to delete.
        dry_run: whether to check them only.

    Raises:
        UsageError: if a folder contains a foreign file.
        DatasetExists: if a run is active.
    """
    contents = [Contents(version.directory, version.manifest.name) for version in old]
    contents += _half_deleted(folder)
    for each in contents:
        each.check()
    if dry_run or not contents:
        return
    with ExitStack() as held:
        for found in _locks(folder, old):
            held.callback(found.release)
        for each in contents:
            _ = each.owned  # by the manifest of the published dataset, before the marker is gone
            # Without the marker, readers ignore the folder: they never see a part of a dataset.
            delete(layout.join(each.directory, layout.SUCCESS))
            each.discard()


def _half_deleted(folder: str) -> Iterator[Contents]:
    """Yields the local versions that were published, but have lost their commit marker.

    In an object store, a run that is about to publish has such a folder as well.
    """
    for version, record in without_marker(folder) if is_local(folder) else ():
        if record.state == PUBLISHED:
            name = os.path.basename(os.path.abspath(folder))
            yield Contents(layout.join(folder, version), name)


def without_marker(folder: str) -> Iterator[tuple[str, RunRecord]]:
    """Yields the versions with the output of a run, but no commit marker; with its record.

    Args:
        folder: the folder of all versions, DIR/NAME.
    """
    for version in sorted(entries(folder)[0]):
        if version.startswith("."):  # files of runs
            continue
        directory = layout.join(folder, version)
        is_published = exists(layout.join(directory, layout.SUCCESS))
        if not is_published and (record := read_record(directory)):
            yield version, record


def _locks(folder: str, versions: Sequence[Version]) -> Iterator[Lock]:
    """Locks the given versions, and those that a run may be writing, which may link to them."""
    if not is_local(folder):
        return
    names = {f".{version.manifest.version}.lock" for version in versions}
    names.update(name for name in os.listdir(folder) if name.endswith(".lock"))
    for name in sorted(names):
        yield lock(layout.join(folder, name), folder)
