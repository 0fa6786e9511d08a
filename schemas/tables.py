"""What is read: the files of a table or another source, their parts, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IMAGES = "images"
"""The type of a column of bytes that are images, where types do not tell."""


@dataclass(frozen=True)
class TableFile:
    """One file of a table, or the folder of a source that is one.

    Attributes:
        path: as opened; it stands in sources and decides where relative images are.
        format: one of `recordmill.transforms.storage.formats.FORMATS`.
        gzipped: whether its bytes are compressed.
    """

    path: str
    format: str
    gzipped: bool = False


@dataclass(frozen=True)
class TablePart:
    """What one worker reads at a time: a file, a row group of Parquet, or some files of a folder.

    Attributes:
        file: the file or folder.
        row_group: which row group, or None for the whole file.
        first: the number of its first row within the file, from 1.
        names: the files of a folder, as below it.
    """

    file: TableFile
    row_group: int | None = None
    first: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What a reader is asked for.

    Attributes:
        columns: the columns to keep, or None for all.
        image: the column of the images, or "" if none are wanted.
        pixels: whether the bytes of embedded images are to be read; otherwise only their sizes,
            or near enough, for the survey.
        image_root: base of relative image paths, or None for the source's own.
        max_image_bytes: the largest image that is taken out of a compressed source.
    """

    columns: tuple[str, ...] | None = None
    image: str = ""
    pixels: bool = False
    image_root: str | None = None
    max_image_bytes: int = 256 * 2**20

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a row's values without those of columns that nobody asked for."""
        if self.columns is None:
            return dict(values)
        return {name: values[name] for name in self.columns if name in values}


@dataclass(frozen=True)
class Head:
    """What a look at the beginning of a source tells.

    Attributes:
        columns: the names that its rows have, as far as was looked.
        has_rows: whether any row was seen; a table may well have none.
        unsupported: column to its type, where that makes no feature.
        embedded: the columns that hold images themselves, or may do.
    """

    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()
