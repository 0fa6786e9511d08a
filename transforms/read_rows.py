"""Reads the rows of a source: tables, folders, tar files, and whatever else `FORMATS` has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Projection, SourceSplit, TableFile
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.storage.embedded_images import staged, staging_file
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.storage.stores.options import max_image_bytes
from recordmill.transforms.workers.progress import advance

_SKIPPED = "skipped"


class SourceSplits(NamedTuple):
    """The sources, listed.

    Attributes:
        splits: what one worker reads at a time: a file, a row group, some files of a folder.
        rejects: what cannot be listed.
        skipped: skipped inputs: (what, how many), any number of them.
    """

    splits: PCollection[SourceSplit]
    rejects: PCollection[Reject]
    skipped: PCollection[tuple[str, int]]


class ReadOutcome(NamedTuple):
    """What comes of reading.

    Attributes:
        good: the rows.
        rejects: those that cannot be read, or listed.
        skipped: skipped inputs: (what, how many), any number of them.
    """

    good: PCollection[Row]
    rejects: PCollection[Reject]
    skipped: PCollection[tuple[str, int]]


@dataclass(eq=False)
class ListSources(beam.PTransform):
    """Splits sources into what workers read: pipeline → SourceSplits.

    Folders are walked and footers read here, once, however often the rows are read.

    Attributes:
        files: the tables, or folders.
    """

    files: tuple[TableFile, ...]

    def expand(self, root: beam.Pipeline) -> SourceSplits:
        """Adds the listing; one file or folder is one unit of work."""
        listed = (
            root
            | "Sources" >> beam.Create(self.files)
            | "Split" >> beam.FlatMap(_splits_tagged).with_outputs(REJECTS, _SKIPPED, main="splits")
        )
        return SourceSplits(listed.splits, listed[REJECTS], listed[_SKIPPED])


@dataclass(eq=False)
class ReadRows(beam.PTransform):
    """Reads every row of a source: SourceSplits → ReadOutcome.

    Attributes:
        projection: which columns to keep, and which of them has the images.
        staging: the folder below which embedded images are put to get an address; "" for the
            analysis, which needs only their sizes.
        counted: whether progress counts the rows: not where the same or other tables are read
            beside it.
    """

    projection: Projection
    staging: str = ""
    counted: bool = True

    def expand(self, listed: SourceSplits) -> ReadOutcome:
        """Adds the reading; one split is one unit of work."""
        read = (
            listed.splits
            # Row groups of one file go to many workers. And each reader has a shuffle of its own,
            # so that no runner fuses two readers and then stores the rows of one of them.
            | "SpreadSplits" >> beam.Reshuffle()  # SourceSplit
            | "ReadSplits"
            >> beam.FlatMap(_read_tagged, self.projection, self.staging, self.counted).with_outputs(
                REJECTS, _SKIPPED, main="rows"
            )
        )
        return ReadOutcome(
            read.rows,
            (listed.rejects, read[REJECTS]) | "UnreadRows" >> beam.Flatten(),
            (listed.skipped, read[_SKIPPED]) | "SkippedInputs" >> beam.Flatten(),
        )


def _splits_tagged(file: TableFile) -> Iterator[SourceSplit | TaggedOutput]:
    for split in FORMATS[file.format].split(file):
        yield split if isinstance(split, SourceSplit) else _tagged(split)


def _read_tagged(
    split: SourceSplit, projection: Projection, staging: str, counted: bool
) -> Iterator[Row | TaggedOutput]:
    """Yields the rows of one split of a source, those that cannot be read as rejects."""
    projection = replace(projection, pixels=bool(staging), max_image_bytes=max_image_bytes())
    rows = FORMATS[split.file.format].read(split, projection)
    for row in staged(rows, staging_file(staging)):
        if counted:
            advance("read")
        yield row if isinstance(row, Row) else _tagged(row)


def _tagged(other: Reject | SkippedInput) -> TaggedOutput:
    return rejected(other) if isinstance(other, Reject) else TaggedOutput(_SKIPPED, tuple(other))
