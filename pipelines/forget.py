"""Makes a version of a dataset without some of its records, and lists who else has them.

The new version is a conversion whose only input is its base version and the keys to remove: shards
without such keys are linked, and the others are rewritten from the records in the base's shards.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsIter, PCollection
from pydantic import ValidationError

from recordmill.pipelines.base_version import base_of
from recordmill.pipelines.convert import make_binding
from recordmill.pipelines.dataset.removal import image_digests
from recordmill.pipelines.engines.runners import runner_name
from recordmill.pipelines.graph import Conversion
from recordmill.pipelines.input_tables import InputTables
from recordmill.pipelines.lineage.run_with_events import run as run_with_events
from recordmill.pipelines.publish import publish
from recordmill.pipelines.run.lock import lock_target
from recordmill.pipelines.run.run_record import PUBLISHED, RunContext, RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.versions import (
    Holder,
    delete_all,
    delete_unfinished,
    holders,
    unfinished_versions,
)
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.plan import Plan, SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.schemas.removal import RemovedRecords, digest_of_key
from recordmill.schemas.statistics import GroupLeakage
from recordmill.transforms.duplicates import FindDuplicateImages
from recordmill.transforms.elements import AssignedRows, OrderedRefs
from recordmill.transforms.functional.near_duplicates import MAX_DISTANCE, distances_to
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.image_findings import FindImageIssues
from recordmill.transforms.reconcile_counts import ReconcileCounts, WriteLines
from recordmill.transforms.storage.dataset import Dataset, newest_version, published_versions
from recordmill.transforms.storage.files import exists
from recordmill.transforms.verify_shards import IndexShards, VerifyShards
from recordmill.transforms.write_shards import WriteShards

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
        unfinished: the versions with files of unfinished runs, which may have the records.
        warnings: problems that do not affect the data.
    """

    directory: str
    source: str
    removed: int
    records: int
    similar: tuple[SimilarRecord, ...]
    holders: tuple[Holder, ...]
    unfinished: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def certificate(self) -> str | None:
        """The path of the certificate; None if there is no new version."""
        return layout.join(self.directory, layout.REMOVAL) if self.removed else None

    @property
    def links(self) -> list[tuple[str, int, int]]:
        """(path, inode, number) of each file of older versions with hard links elsewhere."""
        return [link for holder in self.holders for link in holder.links]

    @property
    def folder(self) -> str:
        """The folder of all versions."""
        return _parent(self.source)


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

    Args:
        directory: the folder of the newest version, or that of all versions, DIR/NAME.
        keys: the keys of the records.
        options: pipeline options of Beam.
        version: the new version; None for the next number.
        allow_missing: whether to ignore keys that no record has.
        interrupt: records whether the process received a signal.
        command: the command line, for run.json.

    Raises:
        UsageError: if there is no such dataset or record, or if no record would be left.
        RecordmillError: if the run failed.
    """
    selection = select(directory, keys)
    if not allow_missing:
        check_keys(selection)
    similar = similar_records(selection)
    removed = removed_records(selection, similar)
    made = source = selection.dataset.directory
    record = None
    if selection.records:
        number = version or next_version(selection.dataset.manifest.version)
        record = run(selection, removed, number, options, interrupt or Interrupt(), command)
        _check_published(record)
        made = layout.join(_parent(source), number)
    found = holders(_parent(source), frozenset(keys), frozenset(removed.images_sha256))
    return Forgotten(
        made,
        source,
        selection.records,
        record.records if record else 0,
        tuple(similar),
        tuple(holder for holder in found if holder.version.directory != made),
        tuple(unfinished_versions(_parent(source))),
        record.warnings if record else (),
    )


def _check_published(record: RunRecord) -> None:
    """Raises the error of a run that failed."""
    if record.state != PUBLISHED:
        for warning in record.warnings:  # the error does not have them
            logging.getLogger(__name__).warning("%s", warning)
        raise record.error()


def purge(forgotten: Forgotten) -> None:
    """Deletes the older versions that have the records, and the files of unfinished runs.

    Args:
        forgotten: the result of `forget`.

    Raises:
        UsageError: if the folder of one contains a foreign file.
        DatasetExists: if a run is active.
    """
    delete_all(forgotten.folder, [holder.version for holder in forgotten.holders])
    delete_unfinished(forgotten.folder, forgotten.unfinished)


def links_message(forgotten: Forgotten) -> str:
    """Returns the message on bytes of removed records that remain after a purge."""
    number = len(forgotten.links)
    return f"{number} deleted files with removed records have hard links elsewhere"


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] or "."


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
    parent = _parent(dataset.directory)
    versions = published_versions(parent)
    if versions and versions[-1] != dataset.manifest.version:
        raise UsageError(
            f"{directory}: is not the newest version; expected {layout.join(parent, versions[-1])}."
        )
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
    """Rejects keys that no record has.

    Raises:
        UsageError: if there are any, with what is known of the first ones.
    """
    if not selection.missing:
        return
    dataset, missing = selection.dataset, selection.missing
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


def next_version(version: str) -> str:
    """Returns the version after another one.

    >>> next_version("1.2.9")
    '1.2.10'
    """
    first, _, last = version.rpartition(".")
    return f"{first}.{int(last) + 1}"


def config_without(dataset: Dataset, version: str) -> ConvertConfig:
    """Returns the options of the new version: those of its base version.

    Args:
        dataset: the base version.
        version: the new version.

    Raises:
        UsageError: if this release does not know the options of the base version, if the new
            version is not later, or if the folder of the dataset does not have its name.
    """
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
        first = error.errors()[0]
        where = " > ".join(map(str, first["loc"]))
        raise UsageError(
            f"{dataset.path(layout.MANIFEST)}: at config > {where}: {first['msg']}. Convert again."
        ) from error


def _output_of(dataset: Dataset) -> str:
    """Returns the folder in which the options of a new version place it beside its base version."""
    folder, name = _parent(dataset.directory), dataset.manifest.name
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


def run(
    selection: Selection,
    removed: RemovedRecords,
    version: str,
    options: PipelineOptions,
    interrupt: Interrupt,
    command: Sequence[str] = (),
) -> RunRecord:
    """Writes, verifies and publishes a version without the selected records.

    Args:
        selection: the records, at least one.
        removed: the same records as the certificate states them.
        version: the new version.
        options: pipeline options of Beam.
        interrupt: records whether the process received a signal.
        command: the command line, for run.json.

    Returns:
        The run record.

    Raises:
        UsageError: if no record would be left.
        DatasetExists: if the version is already published, or another run is writing it.
    """
    dataset = selection.dataset
    if selection.records == dataset.manifest.input.records:
        raise UsageError(
            f"{dataset.directory}: --keys names all of its records. Delete the dataset instead."
        )
    config, base = config_without(dataset, version), base_of(dataset, keeps_records=True)
    schema = dataset.manifest.dataset_schema
    splits = SplitRanges.from_weights(config.weights)
    analyzer = Analyzer(config, schema, make_binding(config, schema), splits, base)
    context = RunContext.begin(runner_name(options), command)
    locked = lock_target(config, context)
    if locked is None:  # the options have if_exists=fail, which raises instead
        raise UsageError(f"{config.directory}: is already published.")
    job = Conversion(config, InputTables((), (), True, {}), None, analyzer, context, *locked)

    def build(root: beam.Pipeline, job: Conversion) -> PCollection[str]:
        return _build(root, job, base, selection, removed)

    return run_with_events("forget", job, options, interrupt, stages=build)


def _build(
    root: beam.Pipeline,
    job: Conversion,
    base: Base,
    selection: Selection,
    removed: RemovedRecords,
) -> PCollection[str]:
    """Adds the stages of a conversion that follow its rows: there are none, only removals."""
    config, work = job.config, job.target.work
    shards = {split: len(entry.shards) for split, entry in base.manifest.splits.items()}
    resolved = Plan(base.manifest.resolved, shards, 0)
    left = base.manifest.input.records - selection.records
    plan = root | "Plan" >> beam.Create([resolved])
    sized = root | "PlanOfRecords" >> beam.Create([replace(resolved, rows=left)])
    removals = root | "Removals" >> beam.Create(list(_removals(selection))).with_output_types(
        AssignedRows
    )
    none = root | "NoRows" >> beam.Create([])
    written = removals | "WriteShards" >> WriteShards(config, job.target.checkpoints, plan, base)
    verified = written.good | "VerifyShards" >> VerifyShards(config, work)
    info = verified.shards | "Reconcile" >> ReconcileCounts(
        plan=plan,
        rows=none,
        unread=none,
        skipped=none,
        assigned=none,
        duplicates=none,
        group_leaks=root | "NoGroups" >> beam.Create([GroupLeakage()]),
        findings=verified.shards | "FindImageIssues" >> FindImageIssues(work, sized),
        rejects=none,
        tallies=verified.tallies,
        contents=verified.shards | "FindDuplicateImages" >> FindDuplicateImages(work, sized),
        base=base,
    )
    lines = [
        none | f"Write{folder.title()}" >> WriteLines(work, folder) for folder in layout.LINES[:1]
    ]
    files = lines | "AllFiles" >> beam.Flatten()
    indexed = verified.shards if config.index else none
    indexes = indexed | "IndexShards" >> IndexShards(work)
    return info | "Publish" >> beam.Map(
        publish, config, job.target, job.context, AsIter(files), AsDict(indexes), base, removed
    )


def _removals(selection: Selection) -> Iterator[AssignedRows]:
    """Yields the removals of each shard: ((split, shard), [(order, ImageRef)])."""
    for shard, keys in selection.keys.items():
        yield shard, OrderedRefs([(b"", ImageRef.removal(key)) for key in keys])
