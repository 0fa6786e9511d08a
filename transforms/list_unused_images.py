"""Lists the images below a folder that no row names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.layout import is_url
from recordmill.schemas.records import UNUSED_IMAGES, SkippedInput, Unmatched
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.identities import files_of
from recordmill.transforms.functional.rows.row_batch import RowBatch
from recordmill.transforms.storage.formats import FileTree

_FILES, _ROWS = "files", "rows"


class UnusedImages(NamedTuple):
    """The images that no row names."""

    images: PCollection[Unmatched]
    skipped: PCollection[tuple[str, SkippedInput]]


@dataclass(eq=False)
class ListUnusedImages(beam.PTransform):
    """Lists the images that no row names: PCollection[RowBatch] → UnusedImages.

    Images are recognized by their suffix. Paths are shuffled once, images never.
    """

    root: str
    binding: Binding  # the column mapping, from which the addresses of rows result

    def expand(self, rows: PCollection[RowBatch]) -> UnusedImages:
        """Adds the listing, by one worker, and the comparison."""
        files = rows.pipeline | "ImageRoot" >> beam.Create([self.root])
        grouped = {
            _FILES: files
            | "ListImages" >> beam.FlatMap(_images_below).with_output_types(tuple[str, str]),
            _ROWS: rows
            | "NamedImages"
            >> beam.FlatMap(_named, self.binding).with_output_types(tuple[str, str]),
        } | "GroupByFile" >> beam.CoGroupByKey()  # (file, {"files": [address], "rows": [""]})
        images = grouped | "OnlyFiles" >> beam.FlatMap(_unused).with_output_types(Unmatched)
        return UnusedImages(images, images | "CountUnused" >> beam.Map(_skipped))


def _images_below(root: str) -> Iterator[tuple[str, str]]:
    """Yields (file, address) of each image below a folder."""
    tree = FileTree(root.rstrip("/") or "/")
    for name in tree.walk():
        if isinstance(name, str) and has_image_suffix(name):
            yield _file(tree.path(name)), tree.path(name)


def _file(address: str) -> str:
    """Returns the same text for all addresses of a file, except for those through links."""
    return address if is_url(address) else os.path.abspath(address)


def _named(rows: RowBatch, binding: Binding) -> Iterator[tuple[str, str]]:
    for row in rows:
        for address in files_of(row, binding):
            yield _file(address), ""


def _skipped(_: Unmatched) -> tuple[str, SkippedInput]:
    return UNUSED_IMAGES, SkippedInput(UNUSED_IMAGES)  # its name is in the list


def _unused(group: tuple[str, Mapping[str, Iterable[str]]]) -> Iterator[Unmatched]:
    _, sides = group  # (file, {"files": [address], "rows": [""]})
    if not any(True for _ in sides[_ROWS]):
        yield from (Unmatched("", address, "") for address in sides[_FILES])
