"""The records to remove, similar ones that remain, and what the certificate states of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import pyarrow as pa
from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.removal import Removal, RemovedRecords, digest_of_key
from recordmill.transforms.functional.near_duplicates import MAX_DISTANCE, distances_to
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.published import newest_version, read_file
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
