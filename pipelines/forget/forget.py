"""Publishes a version of a dataset without some of its records, and lists who else has them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.forget.holders import (
    Holder,
    delete_unfinished,
    holders,
    unfinished_versions,
)
from recordmill.pipelines.forget.new_version import next_version, run
from recordmill.pipelines.forget.selection import (
    SimilarRecord,
    check_keys,
    removed_records,
    select,
    similar_records,
)
from recordmill.pipelines.run.run_record import PUBLISHED, RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.versions import delete_all
from recordmill.schemas import layout


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
        made = layout.join(layout.versions_folder(source), number)
    found = holders(
        layout.versions_folder(source), frozenset(keys), frozenset(removed.images_sha256)
    )
    return Forgotten(
        made,
        source,
        selection.records,
        record.records if record else 0,
        tuple(similar),
        tuple(holder for holder in found if holder.version.directory != made),
        tuple(unfinished_versions(layout.versions_folder(source))),
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
