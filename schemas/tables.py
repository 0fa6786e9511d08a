"""Sources of rows: their files, splits and probes, and the projection of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The reported type of a bytes column with images, in formats without column types.
IMAGES = "images"


@dataclass(frozen=True)
class TableFile:
    """An input file, or an input folder for formats that are folders.

    Attributes:
        path: its path, which is the source of its rows, and the base of relative image paths.
        format: one of `recordmill.transforms.storage.formats.FORMATS`.
        gzipped: whether the file is compressed.
        size: size in bytes, if byte ranges can be read; None otherwise.
    """

    path: str
    format: str
    gzipped: bool = False
    size: int | None = None


@dataclass(frozen=True)
class SourceSplit:
    """The unit that one worker reads: a file or a part of one, or some files of a folder.

    Attributes:
        file: the file or folder.
        row_group: the number of a row group, or None for the whole file.
        first: the number of its first row in the file, from 1; in text tables, its first line.
        names: the paths of files in a folder, relative to the folder.
        start: the first byte of a range of a text table.
        stop: the byte after the range, or None for the whole file.
        header: the columns of a CSV or TSV table, for ranges after the header.
    """

    file: TableFile
    row_group: int | None = None
    first: int = 1
    names: tuple[str, ...] = ()
    start: int = 0
    stop: int | None = None
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Projection:
    """The columns, and the images, that a reader returns.

    Attributes:
        columns: the columns to keep, or None for all.
        image: the image column, or "" to read no images.
        pixels: whether to read the bytes of embedded images; the analyze pass needs only their
            sizes, and an estimate will do.
        image_root: base of relative image paths, or None for the default of the source.
        max_image_bytes: the size in bytes of the largest image read from a compressed source.
    """

    columns: tuple[str, ...] | None = None
    image: str = ""
    pixels: bool = False
    image_root: str | None = None
    max_image_bytes: int = 256 * 2**20

    def apply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the projected columns of a row."""
        if self.columns is None:
            return dict(values)
        return {name: values[name] for name in self.columns if name in values}


@dataclass(frozen=True)
class Probe:
    """Metadata from the beginning of a source.

    Attributes:
        columns: the names of the columns, from the schema or the first rows.
        has_rows: whether the source has a row.
        unsupported: types of the columns that cannot become features, by column.
        embedded: the columns that may contain image bytes.
    """

    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()
