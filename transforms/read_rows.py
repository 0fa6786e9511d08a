"""Reads the rows of label tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.pvalue import PCollection, TaggedOutput

from schemas.records import Row
from schemas.rejects import Reject
from schemas.tables import TableFile, TablePart
from transforms.files import open_table
from transforms.functional import delimited, json_lines, parquet
from transforms.outcome import REJECTS, Outcome, rejected

DELIMITERS = {"csv": ",", "tsv": "\t"}


@dataclass(eq=False)
class ReadRows(beam.PTransform):
    """Reads every row of some tables: pipeline → Outcome(Row).

    Attributes:
        files: the tables.
        columns: the columns to keep, or None for all.
    """

    files: tuple[TableFile, ...]
    columns: tuple[str, ...] | None

    def expand(self, root: beam.Pipeline) -> Outcome:
        """Adds the reading; one part of a table is one unit of work."""
        parts = (
            root
            | "ListTables" >> beam.Create(self.files)
            | "SplitTables" >> beam.FlatMap(parts_of)
            | "SpreadParts" >> beam.Reshuffle()  # row groups of one file on many workers
        )
        read = parts | "ReadParts" >> beam.FlatMap(_read_tagged, self.columns).with_outputs(
            REJECTS, main="rows"
        )
        rows: PCollection[Row] = read.rows
        return Outcome(rows, read[REJECTS])


def parts_of(file: TableFile) -> list[TablePart]:
    """Returns what of a table can be read apart: Parquet's row groups, or the whole file."""
    if file.format != "parquet":
        return [TablePart(file)]
    with open_table(file) as stream:
        firsts = parquet.first_rows(pq.read_metadata(stream))
    return [TablePart(file, group, first) for group, first in enumerate(firsts)]


def read_part(part: TablePart, columns: tuple[str, ...] | None) -> Iterator[Row | Reject]:
    """Yields the rows of one part of a table, those that cannot be read as rejects."""
    file = part.file
    with open_table(file) as stream:
        if file.format in DELIMITERS:
            delimiter = DELIMITERS[file.format]
            yield from delimited.read_rows(stream, delimiter, file.path, columns)
        elif file.format == "jsonl":
            yield from json_lines.read_rows(stream, file.path, columns)
        else:
            table = pq.ParquetFile(stream, page_checksum_verification=True)
            group = part.row_group or 0
            yield from parquet.read_row_group(table, group, part.first, file.path, columns)


def _read_tagged(part: TablePart, columns: tuple[str, ...] | None) -> Iterator[Row | TaggedOutput]:
    for row in read_part(part, columns):
        yield rejected(row) if isinstance(row, Reject) else row
