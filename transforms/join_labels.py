"""Joins rows with the labels of a second table."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.layout import is_url
from recordmill.schemas.records import (
    UNMATCHED_LABELS,
    UNUSED_IMAGES,
    Items,
    Row,
    SkippedInput,
    Unmatched,
)
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import Exclusion
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import Binding, files_of
from recordmill.transforms.functional.values.typed import short_repr, single_value, to_bytes
from recordmill.transforms.inputs.file_tree import FileTree, pattern_of
from recordmill.transforms.read_rows import ReadOutcome

_SKIPPED, _UNMATCHED_LABELS, _UNMATCHED_IMAGES = "skipped", "unmatched_labels", "unmatched_images"
_ROWS, _LABELS = "rows", "labels"

# A join key and its row.
Keyed = tuple[str, Row]


class JoinOutcome(NamedTuple):
    """The result of a join."""

    read: ReadOutcome  # the joined rows, with the rejects and skipped inputs of both tables
    labels: PCollection[Unmatched]  # the label rows without a row
    images: PCollection[Unmatched]  # the rows without labels, which are also rejects


@dataclass(eq=False)
class JoinLabels(beam.PTransform):
    """Joins rows with the rows of a label table: ReadOutcome → JoinOutcome.

    Rows without labels are rejected. Label rows without a row are counted as skipped inputs, and
    rejected label rows are among the rejects of the result. Rows are shuffled once, images never.
    """

    labels: ReadOutcome
    columns: tuple[str, str]
    image_column: str
    example: Any = None  # the value of the first label row, for messages

    def expand(self, read: ReadOutcome) -> JoinOutcome:
        """Adds the join."""
        sides = {_ROWS: read.good, _LABELS: self.labels.good}  # {side: PCollection[RowBatch]}
        keyed = {
            side: rows
            | f"KeyOf{side.title()}"
            >> beam.FlatMap(_keyed, column)
            .with_output_types(Keyed)
            .with_outputs(REJECTS, main=side)
            for (side, rows), column in zip(sides.items(), self.columns, strict=True)
        }
        # Typed, so that the shuffle uses the coder of rows.
        found = (
            {side: found[side] for side, found in keyed.items()}
            | "GroupByValue" >> beam.CoGroupByKey()  # (value, {"rows": [Row], "labels": [Row]})
            | "Join"
            >> beam.FlatMap(_join, self.columns[1], self.image_column, self.example)
            .with_output_types(RowBatch)
            .with_outputs(REJECTS, _SKIPPED, _UNMATCHED_LABELS, _UNMATCHED_IMAGES, main="joined")
        )
        rows: PCollection[RowBatch] = found.joined
        rejects = (read.rejects, self.labels.rejects, *(k[REJECTS] for k in keyed.values()))
        joined = ReadOutcome(
            rows,
            (*rejects, found[REJECTS]) | "UnjoinedRows" >> beam.Flatten(),
            (read.skipped, self.labels.skipped, found[_SKIPPED])
            | "AllSkippedInputs" >> beam.Flatten(),
        )
        return JoinOutcome(joined, found[_UNMATCHED_LABELS], found[_UNMATCHED_IMAGES])


def _keyed(rows: RowBatch, column: str) -> Iterator[Keyed | TaggedOutput]:
    for row in rows:
        try:
            yield _join_key(row, column), row
        except RecordError as error:
            yield rejected(Reject("", row.own_uri, row.source, error.reason, error.detail))


def _join(
    group: tuple[str, Mapping[str, Iterable[Row]]], column: str, image_column: str, example: Any
) -> Iterator[RowBatch | TaggedOutput]:
    value, sides = group  # (value, {"rows": [Row], "labels": [Row]})
    labels = list(sides[_LABELS])
    matched = False
    for row in sides[_ROWS]:
        matched = True
        if labels:
            yield RowBatch.of([_join_row(row, labels)])
        else:
            reject = _unmatched_reject(row, value, column, image_column, example)
            yield rejected(reject)
            image = Unmatched(value, reject.uri or reject.key, row.source)
            yield TaggedOutput(_UNMATCHED_IMAGES, image)
    # Only rows become records or rejects, so labels without a row are skipped inputs.
    if not matched:
        yield TaggedOutput(
            _SKIPPED, (UNMATCHED_LABELS, SkippedInput(UNMATCHED_LABELS, len(labels)))
        )
        for label in labels:
            yield TaggedOutput(_UNMATCHED_LABELS, Unmatched(value, "", label.source))


def _join_key(row: Row, column: str) -> str:
    """Returns the join key of a row: the text of a column in NFC, or its integer in decimal.

    File systems and tables may have different Unicode forms of the same name: macOS stores `é` as
    two characters.
    """
    try:
        value = single_value(row.values.get(column))
        if value is None or value == "":
            raise RecordError(Reason.MISSING_VALUE, "empty; rows are joined by it")
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise RecordError(Reason.WRONG_TYPE, f"expected text or integers, got {value!r}")
        to_bytes(value, is_text=True)
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None
    return unicodedata.normalize("NFC", value)


def _join_row(row: Row, labels: Sequence[Row]) -> Row:
    """Returns a row with the columns of its label rows, which replace its own of the same name.

    The values of a label column are collected as `Items`: a list feature takes them as a list, and
    for any other feature they must all be equal.
    """
    ordered = sorted(labels, key=lambda label: (label.file, label.line))  # a grouping has no order
    columns = dict.fromkeys(column for label in ordered for column in label.values)
    values = {column: Items(label.values.get(column) for label in ordered) for column in columns}
    untyped = {column for column in row.values if row.untyped(column)} - columns.keys()
    untyped |= {column for label in ordered for column in label.values if label.untyped(column)}
    return row._replace(values={**row.values, **values}, is_text=frozenset(untyped))


def _unmatched_reject(row: Row, key: str, column: str, image_column: str, example: Any) -> Reject:
    name = row.values.get(image_column)
    detail = f"the labels have no row whose {column!r} is {key!r}"
    detail += f"; that of their first row is {short_repr(example)}" * (example is not None)
    image = name if isinstance(name, str) else ""
    return Reject(image, row.own_uri, row.source, Reason.UNMATCHED_JOIN, detail)


_FILES, _PATH_ROWS = "files", "rows"


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
    exclusions: Set[Exclusion] = frozenset()  # files that are left out are not unused

    def expand(self, rows: PCollection[RowBatch]) -> UnusedImages:
        """Adds the listing, by one worker, and the comparison."""
        files = rows.pipeline | "ImageRoot" >> beam.Create([self.root])
        grouped = {
            _FILES: files
            | "ListImages"
            >> beam.FlatMap(_images_below, self.exclusions).with_output_types(tuple[str, str]),
            _PATH_ROWS: rows
            | "NamedImages"
            >> beam.FlatMap(_named, self.binding).with_output_types(tuple[str, str]),
        } | "GroupByFile" >> beam.CoGroupByKey()  # (file, {"files": [address], "rows": [""]})
        images = grouped | "OnlyFiles" >> beam.FlatMap(_unused).with_output_types(Unmatched)
        return UnusedImages(images, images | "CountUnused" >> beam.Map(_skipped))


def _images_below(root: str, exclusions: Set[Exclusion]) -> Iterator[tuple[str, str]]:
    """Yields (file, address) of each image below a folder, except for those left out."""
    tree = FileTree(root.rstrip("/") or "/")
    known = [replace(exclusion, root=_file(exclusion.root)) for exclusion in exclusions]
    for name in tree.walk():
        if isinstance(name, str) and has_image_suffix(name):
            file = _file(tree.path(name))
            if not any(pattern_of(exclusion, file) for exclusion in known):
                yield file, tree.path(name)


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
    if not any(True for _ in sides[_PATH_ROWS]):
        yield from (Unmatched("", address, "") for address in sides[_FILES])
