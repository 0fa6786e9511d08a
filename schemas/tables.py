"""The files that a label table consists of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableFile:
    """One file of a table.

    Attributes:
        path: as opened; it stands in sources and decides where relative images are.
        format: "csv", "tsv", "jsonl" or "parquet".
        gzipped: whether its bytes are compressed.
    """

    path: str
    format: str
    gzipped: bool = False


@dataclass(frozen=True)
class TablePart:
    """What one worker reads at a time: a file, or one row group of a Parquet file.

    Attributes:
        file: the file.
        row_group: which row group, or None for the whole file.
        first: the number of its first row within the file, from 1.
    """

    file: TableFile
    row_group: int | None = None
    first: int = 1
