"""Publishes a version of a dataset without some of its records, and lists who else has them.

It is a conversion whose only input is its base version and the keys to remove: shards without such
keys are linked, and the others are rewritten from the records in the base's shards.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from pydantic import ValidationError

from recordmill.pipelines import lineage
from recordmill.pipelines.base_version import base_of
from recordmill.pipelines.engines.runners import runner_name
from recordmill.pipelines.graph import Conversion, RowsOfShards, publish_rows
from recordmill.pipelines.run.lock import lock_target
from recordmill.pipelines.run.run_record import PUBLISHED, RunContext, RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.versions import (
    Identity,
    Listing,
    Version,
    delete_unfinished,
    delete_versions,
    identity,
    list_versions,
)
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.document import first_fault
from recordmill.schemas.errors import RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.findings import counted, first_lines
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.plan import Plan, SourceEntry, SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.schemas.removal import Removal, RemovedRecords, digest_of_key
from recordmill.transforms.elements import AssignedRows
from recordmill.transforms.functional.near_duplicates import MAX_DISTANCE, distances_to
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.inputs.input_tables import InputTables
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import all_files_below, exists, is_local
from recordmill.transforms.storage.published import newest_version, read_file, unreadable
from recordmill.transforms.verification.verify_shard import image_digests

_SHOWN_KEYS = 5


@dataclass(frozen=True)
class Selection:
    """The records of a dataset that are to be removed."""

    dataset: DatasetFolder  # its newest version
    keys: Mapping[tuple[str, int], tuple[str, ...]]  # by (split, shard number), where there are any
    images: frozenset[str]  # the hex digest of each image
    hashes: tuple[str, ...]  # the perceptual hash of each image that has one, in hexadecimal
    missing: tuple[str, ...]  # the keys that no record has, sorted

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


def _select(directory: str, keys: Collection[str]) -> Selection:
    dataset = DatasetFolder.named(directory)
    parent = layout.versions_folder(dataset.directory)
    newest = newest_version(parent)
    if newest not in (parent, layout.join(parent, dataset.manifest.version)):
        raise UsageError(f"{directory}: is not the newest version; expected {newest}.")
    sought = frozenset(keys)
    shards = dataset.shards()

    def rows_with_keys(shard: ShardEntry) -> list[dict[str, Any]]:
        return [row for row in _index_of(dataset, shard) if row["key"] in sought]

    found = zip(shards, map_in_threads(rows_with_keys, shards.values()), strict=True)
    chosen = {shard: rows for shard, rows in found if rows}
    keys_of = {shard: tuple(row["key"] for row in rows) for shard, rows in chosen.items()}
    located = [(shards[shard], row) for shard, rows in chosen.items() for row in rows]
    return Selection(
        dataset,
        keys_of,
        frozenset(d for shard, row in located for d in _digests_of(dataset, shard, row)),
        tuple(phash for _, row in located for phash in _hashes_of(row) if phash),
        tuple(sorted(sought.difference(*keys_of.values()))),
    )


def _check_keys(selection: Selection) -> None:
    """Rejects keys that no record has, except for those that an earlier `forget` has removed."""
    dataset = selection.dataset
    # A purge that was killed after it had published is repeated with the same keys.
    forgotten = dataset.manifest.removed_keys
    missing = [key for key in selection.missing if digest_of_key(key) not in forgotten]
    if not missing:
        return
    dropped = {row["key"]: row["repeats"] for row in dataset.dropped()}
    rejected = {row["key"] for row in dataset.rejects()}
    shown = list[str]()
    for key in missing[:_SHOWN_KEYS]:
        note = f" (dropped: the record {dropped[key]!r} has its image)" if key in dropped else ""
        note = note or (" (rejected: it has no record)" if key in rejected else "")
        shown.append(f"{key!r}{note}")
    raise UsageError(
        f"{dataset.directory}: has no record with {len(missing):,} of the keys in --keys:"
        f"{first_lines(shown, _SHOWN_KEYS, len(missing))}\n"
        "Correct them; keys are those in records/. Or add --allow_missing to pass over them."
    )


def _similar_records(selection: Selection) -> list[SimilarRecord]:
    """Returns the remaining records with the image of a removed record, or one similar to it.

    Takes time for each pair of a removed and a remaining image. Identical images come first.
    """
    dataset = selection.dataset
    if not selection.keys or not dataset.manifest.dataset_schema.has_image:
        return []
    by_shard = map_in_threads(partial(_similar_in_shard, selection), dataset.shards())
    found = list(chain.from_iterable(by_shard))
    return sorted(found, key=lambda record: (not record.is_same, record.distance, record.key))


def _similar_in_shard(selection: Selection, shard: tuple[str, int]) -> list[SimilarRecord]:
    found = list[SimilarRecord]()
    entry = selection.dataset.shard(*shard)
    gone = frozenset(selection.keys.get(shard, ()))
    rows = [row for row in _index_of(selection.dataset, entry) if row["key"] not in gone]
    hashes = dict.fromkeys(phash for row in rows for phash in _hashes_of(row) if phash)
    near = distances_to(selection.hashes, list(hashes))
    for row in rows:
        distances = [near[phash] for phash in _hashes_of(row) if phash]
        distance = min(distances, default=MAX_DISTANCE + 1)
        digests = _digests_of(selection.dataset, entry, row, selection.hashes)
        if same := sorted(selection.images.intersection(digests)):
            found += [SimilarRecord(row["key"], shard[0], 0, True, digest) for digest in same]
        elif distance <= MAX_DISTANCE:
            digest = row["sha256"] or ""
            found.append(SimilarRecord(row["key"], shard[0], distance, False, digest))
    return found


def _index_of(dataset: DatasetFolder, shard: ShardEntry) -> list[dict[str, Any]]:
    schema = dataset.manifest.dataset_schema
    names = ["key", "index", "sha256"]
    names += ["phash"] if schema.has_image else []
    names += ["other_images"] if schema.image_names else []
    rows: list[dict[str, Any]] = dataset.index(shard, names).to_pylist()
    return rows


def _hashes_of(row: Mapping[str, Any]) -> list[str | None]:
    """Returns the perceptual hash of the image of a record; for a sequence, those of its frames."""
    found = row.get("phash")
    return found if isinstance(found, list) else [found]


def _digests_of(
    dataset: DatasetFolder, shard: ShardEntry, row: Mapping[str, Any], hashes: Collection[str] = ()
) -> Iterator[str]:
    """Yields the digests of all stored images of a record by its row in the index.

    A sequence is read, as the index lacks the digests of its frames, if one of them has one of some
    perceptual hashes, or none; or if there are no hashes.
    """
    schema = dataset.manifest.dataset_schema
    stored = schema.stored_images.values()
    others = row.get("other_images") or ()
    yield from (image["sha256"] for image in others if image["image"] in stored)
    if schema.sequence is None:
        yield from filter(None, [row["sha256"]])
    elif not hashes or any(not phash or phash in hashes for phash in _hashes_of(row)):
        digests = image_digests(dataset.record(shard, row["index"]), dataset.manifest.resolved)
        yield from chain.from_iterable(digests.values())


def _removed_records(selection: Selection, similar: Sequence[SimilarRecord]) -> RemovedRecords:
    remaining = {record.sha256 for record in similar if record.is_same}
    return RemovedRecords(
        keys_sha256=tuple(sorted(map(digest_of_key, chain(*selection.keys.values())))),
        images_sha256=tuple(sorted(selection.images - remaining)),
        remaining_images_sha256=tuple(sorted(selection.images & remaining)),
    )


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


@dataclass(frozen=True)
class _Sought:
    """Records that versions are searched for, by key or by image."""

    keys: Collection[str]
    images: frozenset[str]  # hex digests
    hashes: Collection[str]  # the perceptual hashes of the images; empty if they are unknown

    def number_in(self, dataset: DatasetFolder, shard: ShardEntry) -> int:
        """Returns the number of these records in a shard."""
        return sum(
            row["key"] in self.keys
            or not self.images.isdisjoint(_digests_of(dataset, shard, row, self.hashes))
            for row in _index_of(dataset, shard)
        )


def _holders(folder: str, sought: _Sought) -> tuple[list[Holder], Listing]:
    """Returns the versions in DIR/NAME that have some of the records, oldest first.

    Also returns the listing of all versions; those that cannot be searched are unreadable in it.
    """
    listing = list_versions(folder)
    faults, found = dict(listing.unreadable), list[Holder]()
    datasets = [DatasetFolder(version.directory, version.manifest) for version in listing.versions]
    try:
        known = _known_files(listing, datasets)
    except OSError as error:
        raise unreadable(error.filename or folder, error) from error
    for version, dataset in zip(listing.versions, datasets, strict=True):
        try:
            if (holder := _holder(version, dataset, sought, known)).records:
                found.append(holder)
        except VerificationFailed as error:  # it may have the records: it is named, and stays
            faults[os.path.basename(version.directory)] = error
    return found, replace(listing, unreadable=faults)


def _known_files(listing: Listing, datasets: Sequence[DatasetFolder]) -> Counter[Identity]:
    """Returns the number of names that each local shard has in the versions of this dataset."""
    known, seen = Counter[Identity](), set[Identity | str]()
    for dataset in datasets:
        folder = listing.identities.get(os.path.basename(dataset.directory), dataset.directory)
        if folder not in seen:  # files of a version that is a link have no other names
            seen.add(folder)
            known.update(map(identity, _stats(dataset, dataset.shards().values())))
    for version in listing.unfinished if is_local(listing.folder) else ():
        run = layout.run_folder(listing.folder, version)  # whose shards may be links, too
        known.update(identity(os.lstat(layout.join(run, name))) for name in all_files_below(run))
    return known


def _holder(
    version: Version, dataset: DatasetFolder, sought: _Sought, known: Mapping[Identity, int]
) -> Holder:
    total, links = 0, list[tuple[str, int, int]]()
    shards = dataset.shards().values()
    counts = map_in_threads(partial(sought.number_in, dataset), shards)
    for shard, found in zip(shards, counts, strict=True):
        total += found
        for stat in _stats(dataset, [shard] if found else []):
            outside = stat.st_nlink - known[identity(stat)]
            if outside > 0:
                links.append((dataset.path(shard.file), stat.st_ino, outside))
    return Holder(version, total, tuple(links))


def _stats(dataset: DatasetFolder, shards: Iterable[ShardEntry]) -> Iterator[os.stat_result]:
    for shard in shards:
        path = dataset.path(shard.file)
        if is_local(path):
            with contextlib.suppress(FileNotFoundError):  # `recordmill verify` reports it
                yield os.stat(path)


def _next_version(version: str) -> str:
    """Returns the version after another one.

    >>> _next_version("1.2.9")
    '1.2.10'
    """
    first, _, last = version.rpartition(".")
    return f"{first}.{int(last) + 1}"


def _config_without(dataset: DatasetFolder, version: str) -> ConvertConfig:
    """Returns the options of the new version: those of its base version."""
    if _numbers(version) <= _numbers(dataset.manifest.version):
        raise UsageError(
            f"--version {version}: expected a version after {dataset.manifest.version}."
        )
    changes = {
        "inputs": (dataset.directory,),
        "output": _output_of(dataset),
        "version": version,
        "base": dataset.directory,
        "report": exists(dataset.report),
    }
    try:
        return ConvertConfig.model_validate({**dataset.manifest.config, **changes})
    except ValidationError as error:
        fault = first_fault(error, "config")
        raise UsageError(f"{dataset.path(layout.MANIFEST)}: {fault}. Convert again.") from error


def _output_of(dataset: DatasetFolder) -> str:
    """Returns the folder in which the options of a new version place it beside its base version."""
    folder = layout.versions_folder(dataset.directory)
    name = dataset.manifest.name
    if not layout.is_url(folder) and os.path.basename(folder) != name:
        folder = os.path.abspath(folder)  # "." and ".." have no name
    output, _, found = folder.rpartition("/")
    if found != name:
        raise UsageError(
            f"{folder}: has versions of the dataset {name!r}; expected the folder DIR/{name}. "
            "Rename it."
        )
    return output or "."


def _numbers(version: str) -> list[int]:
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--version {version}: expected three numbers, as in 1.0.1.")
    return [int(part) for part in parts]


def _publish(
    selection: Selection,
    removed: RemovedRecords,
    version: str,
    options: PipelineOptions,
    interrupt: Interrupt,
    command: Sequence[str],
) -> RunRecord:
    dataset = selection.dataset
    if selection.records == dataset.manifest.input.records:
        raise UsageError(
            f"{dataset.directory}: --keys names all of its records. Delete the dataset instead."
        )
    config = _config_without(dataset, version)
    base = base_of(dataset, keeps_records=True)
    schema = dataset.manifest.dataset_schema
    splits = SplitRanges.from_weights(config.weights)
    analyzer = Analyzer(config, schema, Binding.of(config, schema), splits, base)
    context = RunContext.begin(runner_name(options), command)
    locked = lock_target(config, context)
    if locked is None:  # the options have if_exists=fail, which raises instead
        raise UsageError(f"{config.directory}: is already published.")
    job = Conversion(config, InputTables((), has_rows=True), None, analyzer, context, *locked)

    def build(root: beam.Pipeline, job: Conversion) -> PCollection[str]:
        return publish_rows(_only_removals(root, base, selection), job, removed)

    record = lineage.run("forget", job, options, interrupt, stages=build)
    if record.state != PUBLISHED:
        for warning in record.warnings:  # the error does not have them
            logging.getLogger("recordmill").warning("%s", warning)
        raise record.error(config.directory)
    return record


def _only_removals(root: beam.Pipeline, base: Base, selection: Selection) -> RowsOfShards:
    shards = {split: len(entry.shards) for split, entry in base.manifest.splits.items()}
    left = base.manifest.input.records - selection.records
    source = SourceEntry(snapshots=base.manifest.snapshots)
    plan = Plan(base.manifest.resolved, shards, 0, source=source, kept=left)
    removals = root | "Removals" >> beam.Create(list(_removals(selection))).with_output_types(
        AssignedRows
    )
    return RowsOfShards(root | "Plan" >> beam.Create([plan]), removals)


def _removals(selection: Selection) -> Iterator[AssignedRows]:
    """Yields the removals of each shard: ((split, shard), [(order, ImageRef)])."""
    for shard, keys in selection.keys.items():
        yield shard, OrderedRefs.of([(b"", ImageRef.removal(key)) for key in keys])


@dataclass(frozen=True)
class Forgotten:
    """What `forget` has done.

    Attributes:
        directory: the folder of the new version; that of the newest one if it has none of the keys.
        source: the folder of the version that records were removed from.
        removed: number of records removed.
        records: number of records that remain; 0 if there is no new version.
        similar: the remaining records with the image of a removed record, or one similar to it.
        holders: the older versions that have the records, or had them before they were purged.
        warnings: problems that do not affect the data.
        listing: the versions of the dataset, with those that cannot be read.
    """

    directory: str
    source: str
    removed: int
    records: int
    similar: tuple[SimilarRecord, ...]
    holders: tuple[Holder, ...]
    warnings: tuple[str, ...] = ()
    listing: Listing | None = field(default=None, repr=False)

    @property
    def certificate(self) -> str | None:
        """The path of the certificate; None if there is no new version."""
        return layout.join(self.directory, layout.REMOVAL) if self.removed else None

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The versions with files of unfinished runs, which may have the records."""
        return self.listing.unfinished if self.listing else ()

    @property
    def links(self) -> list[tuple[str, int, int]]:
        """(path, inode, number) of each file of older versions with hard links elsewhere."""
        return [link for holder in self.holders for link in holder.links]

    @property
    def problems(self) -> list[VerificationFailed]:
        """The error of each version that may have the records, but cannot be read."""
        return list(self.listing.unreadable.values()) if self.listing else []

    @property
    def folder(self) -> str:
        """The folder of all versions."""
        return layout.versions_folder(self.source)


def forget(
    directory: str,
    keys: Collection[str],
    options: PipelineOptions,
    *,
    version: str | None = None,
    allow_missing: bool = False,
    interrupt: Interrupt | None = None,
    command: Sequence[str] = (),
) -> Forgotten:
    """Publishes a version without some records, and finds the older versions that have them.

    `directory` is the folder of the newest version, or that of all versions. Raises UsageError if
    there is no such dataset or record, or if no record would be left.
    """
    selection = _select(directory, keys)
    if not allow_missing:
        _check_keys(selection)
    similar = _similar_records(selection)
    removed = _removed_records(selection, similar)
    made = source = selection.dataset.directory
    record = None
    if selection.records:
        number = version or _next_version(selection.dataset.manifest.version)
        interrupt = interrupt or Interrupt()
        record = _publish(selection, removed, number, options, interrupt, command)
        made = layout.join(layout.versions_folder(source), number)
    images = selection.forgotten_images.union(removed.images_sha256)
    hashes = () if selection.forgotten_images else selection.hashes
    sought = _Sought(frozenset(keys), images, hashes)
    found, listing = _holders(layout.versions_folder(source), sought)
    return Forgotten(
        made,
        source,
        selection.records,
        record.records if record else 0,
        tuple(similar),
        tuple(holder for holder in found if holder.version.directory != made),
        record.warnings if record else (),
        listing,
    )


@dataclass(frozen=True)
class Purge:
    """What `purge` has done."""

    holders: tuple[Holder, ...] = ()  # those that it has deleted
    unfinished: tuple[str, ...] = ()  # the versions whose files of unfinished runs it has deleted
    problems: tuple[RecordmillError, ...] = ()  # what remains, and links elsewhere


def purge(forgotten: Forgotten) -> Purge:
    """Deletes the older versions that have the records, and the files of unfinished runs.

    What cannot be deleted is a problem of the result, and the rest is deleted.
    """
    deleted, problems = set[str](), list[RecordmillError]()
    if forgotten.listing:
        try:
            versions = [holder.version for holder in forgotten.holders]
            done = delete_versions(forgotten.listing, versions)
            deleted.update(version.directory for version in done.deleted)
            problems += done.problems
        except RecordmillError as error:
            problems.append(error)
    faults = delete_unfinished(forgotten.folder, forgotten.unfinished)
    problems += (error for error in faults.values() if str(error) not in map(str, problems))
    if forgotten.links:
        number = counted(len(forgotten.links), "deleted shard")
        problems.append(VerificationFailed(f"{number}, with removed records, linked elsewhere"))
    return Purge(
        tuple(h for h in forgotten.holders if h.version.directory in deleted),
        tuple(version for version in forgotten.unfinished if version not in faults),
        tuple(problems),
    )
