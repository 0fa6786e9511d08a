"""Who else has removed records: older versions, hard links, and files of unfinished runs."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from recordmill.pipelines.run.lock import lock_folders
from recordmill.pipelines.run.target import DATASET, Target
from recordmill.pipelines.versions import Version, list_versions, without_marker
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import entries, exists, is_local

# The suffix of the folder of a run, which is beside the version that it writes.
_RUN = ".run"

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

    They are not searched: drafts and copies of images have no index. In an object store, which has
    no locks, active runs are among them.

    Args:
        folder: the folder of all versions, DIR/NAME.
    """
    names = (name for name in entries(folder)[0] if name.startswith("."))
    runs = {name[1 : -len(_RUN)] for name in names if name.endswith(_RUN)}
    return sorted(runs.union(version for version, _ in without_marker(folder)))


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
        held = lock_folders(target)
        try:
            _delete_run(target)
        finally:
            held.release()


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
