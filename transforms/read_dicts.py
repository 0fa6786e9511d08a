"""Reads the rows of a PCollection of dicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.records import Embedded, Row
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Projection
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.functional.sources.dicts import row_of_dict
from recordmill.transforms.read_rows import ReadOutcome
from recordmill.transforms.storage.embedded_images import StagedImages, staging_file
from recordmill.transforms.workers.progress import advance


@dataclass(eq=False)
class ReadDicts(beam.PTransform):
    """Reads dicts of column to value as rows: PCollection[dict] → ReadOutcome.

    Images that rows have in themselves are put into files here, once. So the rows, which are needed
    twice, cross shuffles without them.

    Attributes:
        projection: which columns to keep, and which of them has the images.
        key_column: the column of the key; None for the image's path.
        staging: the folder below which images get an address.
    """

    projection: Projection
    key_column: str | None
    staging: str

    def expand(self, dicts: PCollection[Any]) -> ReadOutcome:
        """Adds the reading."""
        read = dicts | "ReadDict" >> beam.ParDo(
            _ReadDict(self.projection, self.key_column, self.staging)
        ).with_outputs(REJECTS, main="rows")
        skipped = dicts.pipeline | "NothingSkipped" >> beam.Create([])
        return ReadOutcome(read.rows, read[REJECTS], skipped)


class _ReadDict(beam.DoFn):
    """Reads dicts; the images of a bundle go to one file, which is whole when the bundle is."""

    def __init__(self, projection: Projection, key_column: str | None, staging: str) -> None:
        self._projection = projection
        self._key_column = key_column
        self._staging = staging
        self._images: StagedImages | None = None

    def start_bundle(self) -> None:
        self._images = None  # of a bundle that failed: the folder is cleaned up at the end

    def process(self, element: Any) -> Iterator[Row | TaggedOutput]:
        advance("read")
        found = row_of_dict(element, self._projection, self._key_column)
        if isinstance(found, Reject):
            yield rejected(found)
        elif isinstance(found, Embedded):
            self._images = self._images or StagedImages(staging_file(self._staging))
            yield replace(found.row, image=self._images.add(found.data))
        else:
            yield found

    def finish_bundle(self) -> None:
        if self._images is not None:
            self._images.commit()
            self._images = None
