"""Publishes a version of a dataset without some of its records, and lists who else has them.

It is a conversion whose only input is its base version and the keys to remove: shards without such
keys are linked, and the others are rewritten from the records in the base's shards.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from pydantic import ValidationError

from recordmill.pipelines.engines.runners import runner_name
from recordmill.pipelines.graph import AssignedInput, Conversion, RowsOfShards, publish_rows
from recordmill.pipelines.run.lock import lock_target
from recordmill.pipelines.run.run_record import PUBLISHED, RunContext, RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.versions.base import base_of
from recordmill.pipelines.versions.listing import Listing, delete_versions
from recordmill.pipelines.versions.selection import (
    Holder,
    Selection,
    SimilarRecord,
    check_keys,
    delete_unfinished,
    holders,
    removed_records,
    select,
    similar_records,
)
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan, SourceEntry, SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.schemas.removal import RemovedRecords
from recordmill.transforms.elements import AssignedRows
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.inputs.input_tables import InputTables
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import exists


class RunJob(Protocol):
    """Runs a job with other stages than those of a conversion, and returns its record."""

    def __call__(
        self,
        job: Conversion,
        options: PipelineOptions,
        interrupt: Interrupt,
        *,
        stages: Callable[[beam.Pipeline, Conversion], object],
    ) -> RunRecord:
        """Returns the record of the job, after it has ended."""


def _next_version(version: str) -> str:
    """Returns the version after another one.

    >>> _next_version("1.2.9")
    '1.2.10'
    """
    first, _, last = version.rpartition(".")
    return f"{first}.{int(last) + 1}"


def _config_without(dataset: Dataset, version: str) -> ConvertConfig:
    """Returns the options of the new version: those of its base version.

    Raises UsageError if this release does not know the options of the base version, if the new
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
    folder, name = layout.versions_folder(dataset.directory), dataset.manifest.name
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
    run_job: RunJob,
    command: Sequence[str] = (),
) -> RunRecord:
    """Writes, verifies and publishes a version without the selected records.

    Returns the run record. `removed` is the same records as the certificate states them.
    `interrupt`: records whether the process received a signal. Raises UsageError if no record would
    be left. Raises DatasetExists if the version is already published, or another run is writing it.
    """
    dataset = selection.dataset
    if selection.records == dataset.manifest.input.records:
        raise UsageError(
            f"{dataset.directory}: --keys names all of its records. Delete the dataset instead."
        )
    config, base = _config_without(dataset, version), base_of(dataset, keeps_records=True)
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

    return run_job(job, options, interrupt, stages=build)


def _only_removals(root: beam.Pipeline, base: Base, selection: Selection) -> RowsOfShards:
    """Returns the removals of all shards: there are no rows."""
    shards = {split: len(entry.shards) for split, entry in base.manifest.splits.items()}
    left = base.manifest.input.records - selection.records
    source = SourceEntry(snapshots=base.manifest.snapshots)
    plan = Plan(base.manifest.resolved, shards, 0, source=source, kept=left)
    removals = root | "Removals" >> beam.Create(list(_removals(selection))).with_output_types(
        AssignedRows
    )
    plans = root | "Plan" >> beam.Create([plan])

    assigned = AssignedInput(removals, counts=(), read=(), unread=(), unassigned=(), skipped=())
    return RowsOfShards(plans, assigned, removals)


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
        unfinished: the versions with files of unfinished runs, which may have the records.
        warnings: problems that do not affect the data.
        listing: the versions of the dataset, with those that cannot be read.
    """

    directory: str
    source: str
    removed: int
    records: int
    similar: tuple[SimilarRecord, ...]
    holders: tuple[Holder, ...]
    unfinished: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    listing: Listing | None = field(default=None, repr=False)

    @property
    def certificate(self) -> str | None:
        """The path of the certificate; None if there is no new version."""
        return layout.join(self.directory, layout.REMOVAL) if self.removed else None

    @property
    def links(self) -> list[tuple[str, int, int]]:
        """(path, inode, number) of each file of older versions with hard links elsewhere."""
        return [link for holder in self.holders for link in holder.links]

    @property
    def problems(self) -> list[VerificationFailed]:
        """The error of each version that may have the records, but cannot be read."""
        return self.listing.problems if self.listing else []

    @property
    def folder(self) -> str:
        """The folder of all versions."""
        return layout.versions_folder(self.source)


def forget(
    directory: str,
    keys: Collection[str],
    options: PipelineOptions,
    run_job: RunJob,
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
    selection = select(directory, keys)
    if not allow_missing:
        check_keys(selection)
    similar = similar_records(selection)
    removed = removed_records(selection, similar)
    made = source = selection.dataset.directory
    record = None
    if selection.records:
        number = version or _next_version(selection.dataset.manifest.version)
        record = run(
            selection, removed, number, options, interrupt or Interrupt(), run_job, command
        )
        made = layout.join(layout.versions_folder(source), number)
        _check_published(record, made)
    images = selection.forgotten_images.union(removed.images_sha256)
    found, listing = holders(layout.versions_folder(source), frozenset(keys), images)
    return Forgotten(
        made,
        source,
        selection.records,
        record.records if record else 0,
        tuple(similar),
        tuple(holder for holder in found if holder.version.directory != made),
        listing.unfinished,
        record.warnings if record else (),
        listing,
    )


def _check_published(record: RunRecord, directory: str) -> None:
    """Raises the error of a run that failed to publish in `directory`."""
    if record.state != PUBLISHED:
        for warning in record.warnings:  # the error does not have them
            logging.getLogger("recordmill").warning("%s", warning)
        raise record.error(directory)


@dataclass(frozen=True)
class Purge:
    """What `purge` has done.

    Attributes:
        holders: the holders that it has deleted.
        unfinished: the versions whose files of unfinished runs it has deleted.
        problems: an error for each version or file that remains, and for links elsewhere.
    """

    holders: tuple[Holder, ...] = ()
    unfinished: tuple[str, ...] = ()
    problems: tuple[RecordmillError, ...] = ()


def purge(forgotten: Forgotten) -> Purge:
    """Deletes the older versions that have the records, and the files of unfinished runs.

    What cannot be deleted is a problem of the result, and the rest is deleted.

    Args:
        forgotten: the result of `forget`.
    """
    deleted, problems = set[str](), list[RecordmillError]()
    if forgotten.listing:
        try:
            done = delete_versions(
                forgotten.listing, [holder.version for holder in forgotten.holders]
            )
            deleted.update(version.directory for version in done.deleted)
            problems += done.problems
        except RecordmillError as error:
            problems.append(error)
    faults = delete_unfinished(forgotten.folder, forgotten.unfinished)
    problems += (error for error in faults.values() if str(error) not in map(str, problems))
    if forgotten.links:
        problems.append(VerificationFailed(_links_message(forgotten)))
    return Purge(
        tuple(h for h in forgotten.holders if h.version.directory in deleted),
        tuple(version for version in forgotten.unfinished if version not in faults),
        tuple(problems),
    )


def _links_message(forgotten: Forgotten) -> str:
    """Returns the message on bytes of removed records that remain after a purge."""
    number = len(forgotten.links)
    return f"{number} deleted files with removed records have hard links elsewhere"


def raise_problems(problems: Sequence[RecordmillError]) -> None:
    """Raises the first of some errors, with the messages of all."""
    if problems:
        raise type(problems[0])("\n".join(map(str, problems)))
