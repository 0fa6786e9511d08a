"""The versions of a dataset: what each was made from, what it shares, and deletion of old ones."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from recordmill.pipelines.run.lock import Lock, lock
from recordmill.pipelines.run.run_record import PUBLISHED, RunRecord, read_record
from recordmill.pipelines.run.target import DATASET, Contents, Target
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.transforms.storage.dataset import Dataset, published_versions
from recordmill.transforms.storage.files import delete, exists, is_local

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
    for version, record in _without_marker(folder):
        if record.state == PUBLISHED:
            name = os.path.basename(os.path.abspath(folder))
            yield Contents(layout.join(folder, version), name)


def _without_marker(folder: str) -> Iterator[tuple[str, RunRecord]]:
    """Yields the local versions with the output of a run, but no commit marker; with its record."""
    for version in _local_names(folder):
        if version.startswith("."):  # files of runs
            continue
        directory = layout.join(folder, version)
        is_published = exists(layout.join(directory, layout.SUCCESS))
        if not is_published and (record := read_record(directory)):
            yield version, record


def _local_names(folder: str) -> list[str]:
    """Returns the names in a local folder, in order; none of a folder in a store."""
    return sorted(os.listdir(folder)) if is_local(folder) and os.path.isdir(folder) else []


@dataclass(frozen=True)
class Holder:
    """A version that has removed records.

    Attributes:
        version: the version.
        records: number of the removed records in it.
        links: (path, inode, number) of each local file with such records that has hard links
            outside of the versions of this dataset.
    """

    version: Version
    records: int
    links: tuple[tuple[str, int, int], ...]


def holders(folder: str, keys: Collection[str], images: Collection[str]) -> list[Holder]:
    """Returns the versions that have some records, by key or by image, oldest first.

    Args:
        folder: the folder of all versions, DIR/NAME.
        keys: the keys of the records.
        images: the hex digests of their images.
    """
    versions = list_versions(folder)
    datasets = [Dataset.open(version.directory) for version in versions]
    # Files of several versions are links of each other: (device, inode) → names in this folder.
    known = Counter(
        (found.st_dev, found.st_ino)
        for dataset in datasets
        for found in _stats(dataset, dataset.shards().values())
    )
    return [
        holder
        for version, dataset in zip(versions, datasets, strict=True)
        if (holder := _holder(version, dataset, (keys, images), known)).records
    ]


def _holder(
    version: Version,
    dataset: Dataset,
    records: tuple[Collection[str], Collection[str]],
    known: Mapping[tuple[int, int], int],
) -> Holder:
    total, links = 0, list[tuple[str, int, int]]()
    shards = dataset.shards().values()
    with ThreadPoolExecutor(_THREADS) as executor:
        counts = executor.map(partial(_count_in_shard, dataset, *records), shards)
        for shard, found in zip(shards, counts, strict=True):
            total += found
            for stat in _stats(dataset, [shard] if found else []):
                outside = stat.st_nlink - known[stat.st_dev, stat.st_ino]
                if outside > 0:
                    links.append((dataset.path(shard.file), stat.st_ino, outside))
    return Holder(version, total, tuple(links))


def _count_in_shard(
    dataset: Dataset, keys: Collection[str], images: Collection[str], shard: ShardEntry
) -> int:
    table = dataset.index(shard, ["key", "sha256"])
    rows = zip(table["key"].to_pylist(), table["sha256"].to_pylist(), strict=True)
    return sum(key in keys or digest in images for key, digest in rows)


def _stats(dataset: Dataset, shards: Iterable[ShardEntry]) -> Iterator[os.stat_result]:
    """Yields the status of each local shard."""
    for shard in shards:
        path = dataset.path(shard.file)
        if is_local(path):
            with contextlib.suppress(FileNotFoundError):  # `recordmill verify` reports it
                yield os.stat(path)


def unfinished_versions(folder: str) -> list[str]:
    """Returns the versions with files of failed or interrupted runs, which may have any record.

    They are not searched: drafts and copies of images have no index. Those in object stores are
    not listed.

    Args:
        folder: the folder of all versions, DIR/NAME.
    """
    names = (name for name in _local_names(folder) if name.startswith("."))
    runs = {name[1 : -len(_RUN)] for name in names if name.endswith(_RUN)}
    return sorted(runs.union(version for version, _ in _without_marker(folder)))


def delete_unfinished(folder: str, versions: Sequence[str]) -> None:
    """Deletes the files of failed or interrupted runs, with the shards to resume from.

    Args:
        folder: the folder of all versions, DIR/NAME.
        versions: the versions that the runs were writing.

    Raises:
        UsageError: if a folder contains a foreign file, or has the only copy of a dataset.
        DatasetExists: if a run is active.
    """
    for version in versions:
        final, run = layout.join(folder, version), layout.run_folder(folder, version)
        target = Target(final, layout.join(run, DATASET), run)
        held = lock(layout.join(folder, f".{version}.lock"), final)
        try:
            if target.needs_rollback:
                raise UsageError(
                    f"{run}: a run was killed while it replaced the dataset, which is still there. "
                    "Run its command again."
                )
            target.check_run()
            if not target.is_published:
                target.check_final()
                target.contents().discard()
            target.clean_up()
        finally:
            held.release()


def _locks(folder: str, versions: Sequence[Version]) -> Iterator[Lock]:
    """Locks the given versions, and those that a run may be writing, which may link to them."""
    if not is_local(folder):
        return
    names = {f".{version.manifest.version}.lock" for version in versions}
    names.update(name for name in os.listdir(folder) if name.endswith(".lock"))
    for name in sorted(names):
        yield lock(layout.join(folder, name), folder)
