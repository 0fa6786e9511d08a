"""Who else has removed records: older versions, hard links, and files of unfinished runs."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from recordmill.pipelines.run.lock import lock_folders
from recordmill.pipelines.run.target import DATASET, Target
from recordmill.pipelines.versions.deletion import deletion_problem
from recordmill.pipelines.versions.listing import (
    Identity,
    Listing,
    Version,
    identity,
    list_versions,
)
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.storage.byte_ranges import unreadable
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import exists, is_local

# Concurrent reads of indexes: they wait for the file system or store, not for a core.
_THREADS = 16


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


def holders(
    folder: str, keys: Collection[str], images: Collection[str]
) -> tuple[list[Holder], Listing]:
    """Returns the versions that have some records, by key or by image, oldest first.

    Also returns the listing of all versions; those that cannot be searched are unreadable in it.

    Args:
        folder: the folder of all versions, DIR/NAME.
        keys: the keys of the records.
        images: the hex digests of their images.
    """
    listing = list_versions(folder)
    faults, found = dict(listing.unreadable), list[Holder]()
    datasets = [Dataset(version.directory, version.manifest) for version in listing.versions]
    try:
        known = _known_files(listing, datasets)
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error
    for version, dataset in zip(listing.versions, datasets, strict=True):
        try:
            if (holder := _holder(version, dataset, (keys, images), known)).records:
                found.append(holder)
        except VerificationFailed as error:  # it may have the records: it is named, and stays
            faults[os.path.basename(version.directory)] = error
    return found, replace(listing, unreadable=faults)


def _known_files(listing: Listing, datasets: Sequence[Dataset]) -> Counter[Identity]:
    """Returns the number of names that each local shard has in the versions of this dataset."""
    known, seen = Counter[Identity](), set[Identity | str]()
    for dataset in datasets:
        folder = listing.identities.get(os.path.basename(dataset.directory), dataset.directory)
        if folder not in seen:  # files of a version that is a link have no other names
            seen.add(folder)
            known.update(map(identity, _stats(dataset, dataset.shards().values())))
    return known


def _holder(
    version: Version,
    dataset: Dataset,
    records: tuple[Collection[str], Collection[str]],
    known: Mapping[Identity, int],
) -> Holder:
    total, links = 0, list[tuple[str, int, int]]()
    shards = dataset.shards().values()
    with ThreadPoolExecutor(_THREADS) as executor:
        counts = executor.map(partial(_count_in_shard, dataset, *records), shards)
        for shard, found in zip(shards, counts, strict=True):
            total += found
            for stat in _stats(dataset, [shard] if found else []):
                outside = stat.st_nlink - known[identity(stat)]
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


def delete_unfinished(folder: str, versions: Sequence[str]) -> dict[str, RecordmillError]:
    """Deletes the files of failed or interrupted runs, with the shards to resume from.

    Drafts and copies of images have no index, so that they are not searched. In an object store,
    which has no locks, active runs are among them.

    Args:
        folder: the folder of all versions, DIR/NAME.
        versions: the versions that the runs were writing.

    Returns:
        The error of each version with files that remain, such as foreign ones.
    """
    problems = dict[str, RecordmillError]()
    for version in versions:
        final, run = layout.join(folder, version), layout.run_folder(folder, version)
        target = Target(final, layout.join(run, DATASET), run)
        try:
            held = lock_folders(target)
            try:
                _delete_run(target)
            finally:
                held.release()
        except RecordmillError as error:
            problems[version] = error
        except OSError as error:
            problems[version] = deletion_problem(error, run)
    return problems


def _delete_run(target: Target) -> None:
    final = target.contents()
    # In an object store, a dataset that replaces another is copied from the folder of its run.
    is_copied = not is_local(target.final) and exists(
        layout.join(target.run, DATASET, layout.SUCCESS)
    )
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
