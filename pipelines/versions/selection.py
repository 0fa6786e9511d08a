"""The records to remove, and who else has them: other records, older versions, unfinished runs."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import pyarrow as pa
from pydantic import ValidationError

from recordmill.pipelines.run.lock import lock_folders
from recordmill.pipelines.run.target import DATASET, Target
from recordmill.pipelines.versions.listing import (
    Identity,
    Listing,
    Version,
    deletion_problem,
    identity,
    list_versions,
)
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.removal import Removal, RemovedRecords, digest_of_key
from recordmill.transforms.functional.near_duplicates import MAX_DISTANCE, distances_to
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import exists, is_local
from recordmill.transforms.storage.published import newest_version, read_file, unreadable
from recordmill.transforms.verification.verify_shard import image_digests

# Concurrent reads of indexes: they wait for the file system or store, not for a core.
_THREADS = 16

_SHOWN_KEYS = 5


@dataclass(frozen=True)
class Selection:
    """The records of a dataset that are to be removed.

    Attributes:
        dataset: the newest version of the dataset.
        keys: their keys, by (split, shard number); shards without any are left out.
        images: the hex digest of each of their images.
        hashes: the perceptual hash of each of their images that has one, in hexadecimal.
        missing: the keys that no record has, sorted.
    """

    dataset: Dataset
    keys: Mapping[tuple[str, int], tuple[str, ...]]
    images: frozenset[str]
    hashes: tuple[str, ...]
    missing: tuple[str, ...]

    @cached_property
    def forgotten_images(self) -> frozenset[str]:
        """The digests of the images of these keys that this version was made without.

        A certificate does not state whose image one is: it counts if all of its keys are given.
        """
        data = read_file(self.dataset.path(layout.REMOVAL))
        if data is None or layout.REMOVAL not in self.dataset.manifest.sidecars:
            return frozenset()
        with suppress(ValidationError):  # `recordmill verify` reports it
            removal = Removal.model_validate_json(data)
            if set(map(digest_of_key, self.missing)).issuperset(removal.keys_sha256):
                return frozenset(removal.images_sha256)
        return frozenset()

    @property
    def records(self) -> int:
        """Their number."""
        return sum(map(len, self.keys.values()))


@dataclass(frozen=True)
class SimilarRecord:
    """A remaining record whose image is that of a removed record, or similar to it.

    Attributes:
        key: its key.
        split: its split.
        distance: number of different bits of the perceptual hashes, of 256; 0 for the same image.
        is_same: whether the images are identical.
        sha256: the hex digest of its image.
    """

    key: str
    split: str
    distance: int
    is_same: bool
    sha256: str


def select(directory: str, keys: Collection[str]) -> Selection:
    """Finds the records to remove.

    Args:
        directory: the folder of the newest version, or that of all versions, DIR/NAME.
        keys: the keys of the records.

    Raises:
        UsageError: if there is no published dataset, or if there is a newer version.
    """
    try:
        dataset = Dataset.open(newest_version(directory))
    except VerificationFailed as error:
        raise UsageError(str(error)) from error
    parent = layout.versions_folder(dataset.directory)
    newest = newest_version(parent)
    if newest not in (parent, layout.join(parent, dataset.manifest.version)):
        raise UsageError(f"{directory}: is not the newest version; expected {newest}.")
    chosen_keys = frozenset(keys)
    with ThreadPoolExecutor(_THREADS) as executor:
        tables = executor.map(partial(_index_of, dataset), dataset.shards().values())
        chosen = {
            shard: found
            for shard, table in zip(dataset.shards(), tables, strict=True)
            if len(found := _rows_with_key(table, chosen_keys))
        }
    found = {shard: tuple(table["key"].to_pylist()) for shard, table in chosen.items()}
    present = {key for some in found.values() for key in some}
    hashes = (value for table in chosen.values() for value in _flat(table, "phash"))
    return Selection(
        dataset,
        found,
        frozenset(d for shard, table in chosen.items() for d in _images(dataset, shard, table)),
        tuple(value for value in hashes if value),
        tuple(sorted(chosen_keys - present)),
    )


def check_keys(selection: Selection) -> None:
    """Rejects keys that no record has, except for those that an earlier `forget` has removed.

    Raises:
        UsageError: if there are any, with what is known of the first ones.
    """
    dataset = selection.dataset
    # A purge that was killed after it had published is repeated with the same keys.
    base = dataset.manifest.base
    forgotten = frozenset(base.removed_keys_sha256 if base else ())
    missing = [key for key in selection.missing if digest_of_key(key) not in forgotten]
    if not missing:
        return
    dropped = {row["key"]: row["repeats"] for row in dataset.dropped()}
    rejected = {row["key"] for row in dataset.rejects()}
    shown = []
    for key in missing[:_SHOWN_KEYS]:
        note = f" (dropped: the record {dropped[key]!r} has its image)" if key in dropped else ""
        note = note or (" (rejected: it has no record)" if key in rejected else "")
        shown.append(f"\n  {key!r}{note}")
    more = len(missing) - len(shown)
    raise UsageError(
        f"{dataset.directory}: has no record with {len(missing):,} of the keys in --keys:"
        f"{''.join(shown)}{f'{chr(10)}  and {more:,} more' if more else ''}\n"
        "Correct them; keys are those in records/. Or add --allow_missing to pass over them."
    )


def similar_records(selection: Selection) -> list[SimilarRecord]:
    """Returns the remaining records with the image of a removed record, or one similar to it.

    Takes time for each pair of a removed and a remaining image. Identical images come first.
    """
    dataset = selection.dataset
    if not dataset.manifest.dataset_schema.has_image:
        return []
    with ThreadPoolExecutor(_THREADS) as executor:
        by_shard = executor.map(partial(_similar_in_shard, selection), dataset.shards())
        found = list(chain.from_iterable(by_shard))
    return sorted(found, key=lambda record: (not record.is_same, record.distance, record.key))


def _similar_in_shard(selection: Selection, shard: tuple[str, int]) -> list[SimilarRecord]:
    found, gone = list[SimilarRecord](), frozenset(selection.keys.get(shard, ()))
    table = _index_of(selection.dataset, selection.dataset.shard(*shard))
    images = dict.fromkeys(_flat(table, "phash"))
    near = distances_to(selection.hashes, [value for value in images if value])
    for row in table.to_pylist():
        if row["key"] in gone:
            continue
        hashes = row["phash"] if isinstance(row["phash"], list) else [row["phash"]]
        distance = min((near[h] for h in hashes if h), default=MAX_DISTANCE + 1)
        digest = row["sha256"] or ""
        is_same = digest in selection.images
        if is_same or distance <= MAX_DISTANCE:
            distance = 0 if is_same else distance
            found.append(SimilarRecord(row["key"], shard[0], distance, is_same, digest))
    return found


def _index_of(dataset: Dataset, shard: ShardEntry) -> pa.Table:
    """Returns the index of a shard; the column of perceptual hashes is empty without images."""
    names = ["key", "sha256", "index"]
    if dataset.manifest.dataset_schema.has_image:
        return dataset.index(shard, [*names, "phash"])
    table = dataset.index(shard, names)
    return table.append_column("phash", pa.nulls(len(table), pa.string()))


def _rows_with_key(table: pa.Table, keys: Collection[str]) -> pa.Table:
    return table.filter(pa.array([key in keys for key in table["key"].to_pylist()], pa.bool_()))


def _flat(table: pa.Table, column: str) -> Iterator[str | None]:
    """Yields the values of a column, which are lists for sequences."""
    for value in table[column].to_pylist():
        yield from value if isinstance(value, list) else [value]


def _images(dataset: Dataset, shard: tuple[str, int], table: pa.Table) -> Iterator[str]:
    """Yields the digests of the images of some records of a shard."""
    if dataset.manifest.dataset_schema.sequence is None:
        yield from (value for value in table["sha256"].to_pylist() if value)
        return
    entry = dataset.shard(*shard)  # the index has the digest of a sequence, not those of its images
    for number in table["index"].to_pylist():
        yield from image_digests(dataset.record(entry, number), dataset.manifest.resolved)


def removed_records(selection: Selection, similar: Sequence[SimilarRecord]) -> RemovedRecords:
    """Returns the removed records as the certificate states them.

    Args:
        selection: the records.
        similar: the remaining records with similar images.
    """
    keys = (key for some in selection.keys.values() for key in some)
    remaining = {record.sha256 for record in similar if record.is_same}
    return RemovedRecords(
        keys_sha256=tuple(sorted(map(digest_of_key, keys))),
        images_sha256=tuple(sorted(selection.images - remaining)),
        remaining_images_sha256=tuple(sorted(selection.images & remaining)),
    )


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
            with lock_folders(target):
                _delete_run(target)
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
