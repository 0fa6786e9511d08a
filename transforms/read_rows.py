"""Reads the rows of tables or dicts, and binds them to the schema."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas import layout
from recordmill.schemas.masking import masked_url
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.elements import REJECTS, CheckedRows, rejected
from recordmill.transforms.functional.rows import batches
from recordmill.transforms.functional.rows.binding import (
    Binding,
    bind_rows,
    broken_frame,
    by_halves,
    reject_row,
)
from recordmill.transforms.functional.rows.placement import Sampler
from recordmill.transforms.functional.sources import text_ranges
from recordmill.transforms.functional.sources.dicts import row_of_dict, with_locations
from recordmill.transforms.functional.values.typed import size_of_values
from recordmill.transforms.inputs.formats import FORMATS, cut_text, scan_text
from recordmill.transforms.storage.files import create, delete, is_local, make_folders
from recordmill.transforms.storage.stores.options import current_options
from recordmill.transforms.workers.progress import advance

# The output of skipped inputs.
SKIPPED = "skipped"

# Bytes of SHA-256 by which a fingerprint identifies a staged image.
_HASH_BYTES = 16

Unnamed: TypeAlias = Callable[[tuple[TableFile, ...]], Iterator[SkippedInput]]
_Scanned: TypeAlias = tuple[Part, text_ranges.RangeScan | None]


class ListedParts(NamedTuple):
    """The parts of all sources."""

    # Units of reading: a file, a row group, or some files of a folder.
    parts: PCollection[Part]
    rejects: PCollection[Reject]  # files and folders that cannot be listed
    # (kind, skipped inputs); a kind can occur several times.
    skipped: PCollection[tuple[str, SkippedInput]]


class ReadOutcome(NamedTuple):
    """The rows of all sources."""

    good: PCollection[batches.RowBatch]
    # Rows that cannot be read, and files and folders that cannot be listed.
    rejects: PCollection[Reject]
    # (kind, skipped inputs); a kind can occur several times.
    skipped: PCollection[tuple[str, SkippedInput]]


@dataclass(eq=False)
class ListSources(beam.PTransform):
    """Splits sources into parts, the units of reading: pipeline → ListedParts.

    Walks folders, reads Parquet footers and scans large text tables once, even if the rows are read
    twice.
    """

    files: tuple[TableFile, ...]  # the tables or folders
    # (files of a folder) → the images in it that their rows do not name; None not to search them.
    unnamed: Unnamed | None = None

    def expand(self, root: beam.Pipeline) -> ListedParts:
        """Adds the listing; one file or folder is one unit of work."""
        large = [f for f in self.files if text_ranges.is_large(f) and not f.gzipped]
        small = [f for f in self.files if f.gzipped or not text_ranges.is_large(f)]
        names = dict.fromkeys(f.image_folder for f in self.files if f.image_folder and self.unnamed)
        folders = [tuple(f for f in self.files if f.image_folder == name) for name in names]
        listed = (
            root
            | "Sources" >> beam.Create([*small, *folders])
            | "Parts"
            >> beam.FlatMap(_parts_tagged, self.unnamed).with_outputs(
                REJECTS, SKIPPED, main="parts"
            )
        )
        parts = listed.parts
        if large:
            ranges = root | "LargeTables" >> beam.Create(large) | CutText()
            parts = (parts, ranges) | "AllParts" >> beam.Flatten()
        return ListedParts(parts, listed[REJECTS], listed[SKIPPED])


class CutText(beam.PTransform):
    """Splits large text tables: PCollection[TableFile] → PCollection[Part]."""

    def expand(self, files: PCollection[TableFile]) -> PCollection[Part]:
        """Adds the scan; one range is one unit of work; one worker joins the scans of a file."""
        return (
            files
            | "CutText" >> beam.FlatMap(_cut)
            | "SpreadRanges" >> beam.Reshuffle()  # Part
            | "ScanRanges" >> beam.Map(_scanned).with_output_types(tuple[str, _Scanned])
            | "RangesOfFile" >> beam.GroupByKey()  # (path, [(Part, RangeScan)])
            | "AlignRanges" >> beam.FlatMap(_aligned)
        )


@dataclass(eq=False)
class ReadRows(beam.PTransform):
    """Reads every row of the sources: ListedParts → ReadOutcome."""

    projection: Projection
    # The folder below which embedded images are written to staging files; "" for the analyze pass,
    # which needs only their sizes.
    staging: str = ""
    # Whether the progress counters include these rows; False for the analyze pass and for label
    # tables.
    counted: bool = True
    sample: PCollection[Sampler] | None = None  # the sampler, one element; None to read all rows

    def expand(self, listed: ListedParts) -> ReadOutcome:
        """Adds the reading; one part is one unit of work."""
        sampler = AsSingleton(self.sample) if self.sample else None
        read = (
            listed.parts
            # Distributes the row groups of one file over workers. Each of the two readers of a
            # table has its own reshuffle: otherwise, a runner would fuse them, and hold the rows of
            # one in memory.
            | "SpreadParts" >> beam.Reshuffle()  # Part
            | "ReadParts"
            >> beam.FlatMap(_read, self.projection, self.staging, self.counted, sampler)
            .with_output_types(batches.RowBatch)
            .with_outputs(REJECTS, SKIPPED, main="rows")
        )
        return ReadOutcome(
            read.rows,
            (listed.rejects, read[REJECTS]) | "UnreadRows" >> beam.Flatten(),
            (listed.skipped, read[SKIPPED]) | "SkippedInputs" >> beam.Flatten(),
        )


def _cut(file: TableFile) -> list[Part]:
    return cut_text(file, text_ranges.range_bytes_of(file.size or 0))


def _scanned(part: Part) -> tuple[str, _Scanned]:
    return part.file.path, (part, scan_text(part))


def _aligned(ranges: tuple[str, Iterable[_Scanned]]) -> list[Part]:
    path, scanned = ranges
    parts = text_ranges.align(scanned)
    if parts[0].stop is None:
        logging.getLogger(__name__).warning(
            "%s: is read by one worker; expected UTF-8 and records of up to %d MiB. "
            "Check its encoding, and look for a quote that is not closed.",
            masked_url(path),
            text_ranges.MAX_RECORD_BYTES >> 20,
        )
    return parts


def _parts_tagged(
    source: TableFile | tuple[TableFile, ...], unnamed: Any
) -> Iterator[Part | TaggedOutput]:
    for part in (
        unnamed(source) if isinstance(source, tuple) else FORMATS[source.format].parts(source)
    ):
        yield part if isinstance(part, Part) else _tagged(part)


def _read(
    part: Part, projection: Projection, staging: str, counted: bool, sampler: Sampler | None
) -> Iterator[batches.RowBatch | TaggedOutput]:
    """Yields the rows of one part of a source, and rejects for rows that cannot be read."""
    limit = current_options().max_image_bytes
    projection = replace(projection, pixels=bool(staging), max_image_bytes=limit)
    rows = FORMATS[part.file.format].read(part, projection)
    # Sampled before they are staged: images of other rows are not copied.
    sampled = sampler.select(batches.one_by_one(rows)) if sampler else rows
    file, others = _staging_file(staging), projection.other_images
    for found in tagged_batches(_staged(sampled, file, others, projection.pixels)):
        if counted:
            advance("read", len(found) if isinstance(found, batches.RowBatch) else 1)
        yield found


def tagged_batches(
    rows: Iterable[batches.RowBatch | Row | Reject | SkippedInput],
) -> Iterator[batches.RowBatch | TaggedOutput]:
    """Yields rows in batches, and other elements as the outputs `REJECTS` and `SKIPPED`."""
    for found in _batched_rows(rows):
        yield found if isinstance(found, batches.RowBatch) else _tagged(found)


def _batched_rows(
    rows: Iterable[batches.RowBatch | Row | Reject | SkippedInput],
) -> Iterator[batches.RowBatch | Reject | SkippedInput]:
    """Yields rows in batches of a limited number and size, and other elements as they are."""
    batch, size = list[Row](), 0
    for row in rows:
        if not isinstance(row, Row):
            yield row
            continue
        full = len(batch) == batches.BATCH_ROWS or size >= batches.BATCH_BYTES
        if full or (batch and row.is_text != batch[0].is_text):
            yield from batches.batches_of(batch)
            batch, size = [], 0
        batch.append(row)
        values = row.values.values()
        size += sum(map(len, values)) if row.is_text is True else size_of_values(values)
    yield from batches.batches_of(batch)


def _tagged(other: Reject | SkippedInput) -> TaggedOutput:
    return (
        rejected(other) if isinstance(other, Reject) else TaggedOutput(SKIPPED, (other.kind, other))
    )


def _staged(
    rows: Iterator[batches.RowBatch | Row | Reject | SkippedInput],
    path: str,
    others: Sequence[str] = (),
    pixels: bool = True,
) -> Iterator[batches.RowBatch | Row | Reject | SkippedInput]:
    """Yields rows with references in place of embedded images; holds those of one row in memory.

    The staging file is complete after the last row, and not created without images or `pixels`.
    """
    blob: StagedImages | None = None

    def add(data: bytes) -> Location:
        nonlocal blob
        if not pixels:
            return Location(path, 0, len(data))
        blob = blob or StagedImages(path)
        return blob.add(data)

    try:
        for found in rows:
            is_whole = isinstance(found, batches.RowBatch) and _are_paths(found, others)
            for row in [found] if is_whole else batches.one_by_one([found]):
                yield with_locations(row, others, add) if isinstance(row, Row) else row
        if blob is not None:
            blob.commit()
            blob = None
    finally:
        if blob is not None:
            blob.abandon()


def _are_paths(rows: batches.RowBatch, columns: Sequence[str]) -> bool:
    """Returns whether columns of images have texts only, so that the rows can stay in a batch."""
    return all(isinstance(value, str) for name in columns for value in rows.column(name))


def _staging_file(directory: str) -> str:
    """Returns the path of a new staging file: an earlier attempt may still be writing its own."""
    return layout.join(directory, layout.STAGING, f"{uuid.uuid4().hex}.images")


class StagedImages:
    """A staging file of concatenated images; complete once it is committed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        if is_local(path):
            make_folders(os.path.dirname(os.path.dirname(path)), layout.STAGING)
        self._stream = create(path)  # an object in a store does not exist until it is closed

    def add(self, data: bytes) -> Location:
        """Appends an image and returns its byte range."""
        start, self._size = self._size, self._size + len(data)
        self._stream.write(data)
        content = hashlib.sha256(data).digest()[:_HASH_BYTES]
        return Location(self._path, start, self._size, staged=content)

    def commit(self) -> None:
        """Closes the file, which creates the object in a store."""
        self._stream.close()

    def abandon(self) -> None:
        """Deletes the incomplete file, in a store with the parts that were uploaded."""
        with contextlib.suppress(OSError):  # the error that is being raised says more
            self._stream.close()
            delete(self._path)


@dataclass(eq=False)
class ReadDicts(beam.PTransform):
    """Reads dicts of column to value as rows: PCollection[dict] → ReadOutcome.

    Embedded images are written to staging files once, so that rows, which are used twice, cross
    shuffles without them.
    """

    projection: Projection
    key_column: str | None  # the column of the key; None if the image's path is the key
    staging: str  # the folder below which embedded images are written to staging files

    def expand(self, dicts: PCollection[Any]) -> ReadOutcome:
        """Adds the reading."""
        reading = beam.ParDo(_ReadDict(self.projection, self.key_column, self.staging))
        typed = reading.with_output_types(batches.RowBatch)
        read = dicts | "ReadDict" >> typed.with_outputs(REJECTS, main="rows")
        skipped = dicts.pipeline | "NothingSkipped" >> beam.Create([])
        return ReadOutcome(read.rows, read[REJECTS], skipped)


class _ReadDict(beam.DoFn):
    def __init__(self, projection: Projection, key_column: str | None, staging: str) -> None:
        self._projection = projection
        self._key_column = key_column
        self._staging = staging
        self._images: StagedImages | None = None

    def start_bundle(self) -> None:
        self._images = None  # drops the file of a failed bundle; the run deletes the whole folder

    def process(self, element: Any) -> Iterator[batches.RowBatch | TaggedOutput]:
        advance("read")
        found = row_of_dict(element, self._projection, self._key_column)
        if isinstance(found, Reject):
            yield rejected(found)
        else:
            yield batches.RowBatch.of(
                [with_locations(found, self._projection.other_images, self._add)]
            )

    def _add(self, data: bytes) -> Location:
        self._images = self._images or StagedImages(_staging_file(self._staging))
        return self._images.add(data)

    def finish_bundle(self) -> None:
        if self._images is not None:
            self._images.commit()
            self._images = None


@dataclass(eq=False)
class BindRows(beam.PTransform):
    """Binds rows to the schema: PCollection[RowBatch] → CheckedRows(RefBatch)."""

    binding: Binding
    plan: PCollection[Plan]  # the resolved schema, with its kinds and class names

    def expand(self, rows: PCollection[batches.RowBatch]) -> CheckedRows:
        """Adds the binding."""
        binding = beam.ParDo(_Bind(self.binding), AsSingleton(self.plan))
        typed = binding.with_output_types(batches.RefBatch)
        bound = rows | "Bind" >> typed.with_outputs(REJECTS, main="refs")
        refs: PCollection[batches.RefBatch] = bound.refs
        return CheckedRows(refs, bound[REJECTS])


class _Bind(beam.DoFn):
    """Binds rows; resolves the column mapping once per plan."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._plan: Plan | None = None

    def process(
        self, rows: batches.RowBatch, plan: Plan
    ) -> Iterator[batches.RefBatch | TaggedOutput]:
        if plan is not self._plan:
            self._plan, self._binding = plan, replace(self._binding, resolved=plan.resolved)
        refs = list[batches.RefBatch]()
        for part, found in by_halves(bind_rows, rows, self._binding):
            if not isinstance(found, RecordError):
                refs.append(found)
            # Its whole sequence has to be rejected, and frames are only grouped when their shard is
            # written: so it is passed on as a marked reference.
            elif frame := broken_frame(part[0], self._binding, found):
                refs.append(batches.RefBatch.of([frame]))
            else:
                yield rejected(reject_row(part[0], self._binding, found))
        if refs:
            yield batches.RefBatch.joined(refs)
