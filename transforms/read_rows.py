"""Reads the rows of tables or dicts, and binds them to the schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Embedded, ImageRef, Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Projection, SourceSplit, TableFile
from recordmill.transforms.elements import REJECTS, Outcome, rejected
from recordmill.transforms.functional.rows.binding import Binding, bind, broken_frame, reject_row
from recordmill.transforms.functional.sources.dicts import row_of_dict
from recordmill.transforms.storage.embedded_images import StagedImages, staged, staging_file
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


@dataclass(eq=False)
class BindRows(beam.PTransform):
    """Binds rows to the schema: PCollection[Row] → Outcome(ImageRef).

    Attributes:
        binding: which table columns mean what.
        plan: resolves the schema: its kinds and class names.
    """

    binding: Binding
    plan: PCollection[Plan]

    def expand(self, rows: PCollection[Row]) -> Outcome:
        """Adds the binding."""
        bound = rows | "Bind" >> beam.ParDo(
            _Bind(self.binding), AsSingleton(self.plan)
        ).with_outputs(REJECTS, main="refs")
        refs: PCollection[ImageRef] = bound.refs
        return Outcome(refs, bound[REJECTS])


class _Bind(beam.DoFn):
    """Binds rows; what follows from the plan is worked out once."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._plan: Plan | None = None

    def process(self, row: Row, plan: Plan) -> Iterator[ImageRef | TaggedOutput]:
        """Yields the row's reference or its reject; a broken frame goes on, to break the others."""
        if plan is not self._plan:
            self._plan, self._binding = plan, replace(self._binding, resolved=plan.resolved)
        try:
            yield bind(row, self._binding)
        except RecordError as error:
            frame = broken_frame(row, self._binding, error)
            yield frame or rejected(reject_row(row, self._binding, error))
