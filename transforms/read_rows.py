"""Reads the rows of a source: tables, folders, tar files, and whatever else `FORMATS` has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.records import Aside, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import TableFile, TablePart, Wanted
from recordmill.transforms.outcome import REJECTS, rejected
from recordmill.transforms.storage.embedded_images import staged, staging_file
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.storage.stores.options import max_image_bytes
from recordmill.transforms.workers.progress import advance

_ASIDES = "asides"


class ReadOutcome(NamedTuple):
    """What comes of reading.

    Attributes:
        good: the rows.
        rejects: those that cannot be read.
        asides: what makes no row: (what, how many), any number of them.
    """

    good: PCollection[Row]
    rejects: PCollection[Reject]
    asides: PCollection[tuple[str, int]]


@dataclass(eq=False)
class ReadRows(beam.PTransform):
    """Reads every row of a source: pipeline → ReadOutcome.

    Attributes:
        files: the tables, or folders.
        wanted: which columns to keep, and which of them has the images.
        staging: the folder below which embedded images are put to get an address; "" for a survey,
            which needs but their sizes.
        counted: whether progress counts the rows: not where the same or other tables are read
            beside it.
    """

    files: tuple[TableFile, ...]
    wanted: Wanted
    staging: str = ""
    counted: bool = True

    def expand(self, root: beam.Pipeline) -> ReadOutcome:
        """Adds the reading; one part of a table is one unit of work."""
        listed = (
            root
            | "ListTables" >> beam.Create(self.files)
            | "SplitTables"
            >> beam.FlatMap(_parts_tagged).with_outputs(REJECTS, _ASIDES, main="parts")
        )
        read = (
            listed.parts
            | "SpreadParts" >> beam.Reshuffle()  # row groups of one file on many workers
            | "ReadParts"
            >> beam.FlatMap(_read_tagged, self.wanted, self.staging, self.counted).with_outputs(
                REJECTS, _ASIDES, main="rows"
            )
        )
        return ReadOutcome(
            read.rows,
            (listed[REJECTS], read[REJECTS]) | "UnreadRows" >> beam.Flatten(),
            (listed[_ASIDES], read[_ASIDES]) | "Asides" >> beam.Flatten(),
        )


def read_part(part: TablePart, wanted: Wanted, staging: str) -> Iterator[Row | Reject | Aside]:
    """Yields the rows of one part of a source, those that cannot be read as rejects."""
    wanted = replace(wanted, pixels=bool(staging), max_image_bytes=max_image_bytes())
    rows = FORMATS[part.file.format].read(part, wanted)
    return staged(rows, staging_file(staging))


def _parts_tagged(file: TableFile) -> Iterator[TablePart | TaggedOutput]:
    for part in FORMATS[file.format].parts(file):
        yield part if isinstance(part, TablePart) else _tagged(part)


def _read_tagged(
    part: TablePart, wanted: Wanted, staging: str, counted: bool
) -> Iterator[Row | TaggedOutput]:
    for row in read_part(part, wanted, staging):
        if counted:
            advance("read")
        yield row if isinstance(row, Row) else _tagged(row)


def _tagged(other: Reject | Aside) -> TaggedOutput:
    return rejected(other) if isinstance(other, Reject) else TaggedOutput(_ASIDES, tuple(other))
