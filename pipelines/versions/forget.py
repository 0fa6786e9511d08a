"""Publishes a version of a dataset without some of its records, and lists who else has them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.run.run_record import PUBLISHED, RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.versions.deletion import delete_versions
from recordmill.pipelines.versions.holders import Holder, delete_unfinished, holders
from recordmill.pipelines.versions.listing import Listing
from recordmill.pipelines.versions.new_version import RunJob, next_version, run
from recordmill.pipelines.versions.selection import (
    SimilarRecord,
    check_keys,
    removed_records,
    select,
    similar_records,
)
from recordmill.schemas import layout
from recordmill.schemas.errors import RecordmillError, VerificationFailed


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
        number = version or next_version(selection.dataset.manifest.version)
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
