"""Reads inputs in their formats, each of which is a module that `INPUT_FORMATS` names.

`probe` returns the columns of a source, `parts` yields the units in which it is read, and `read`
yields the rows of one. A module has these functions, of a byte stream or a `Tree`; none uses Beam.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from itertools import chain, islice
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import numpy as np

from recordmill.schemas import tables
from recordmill.schemas.condition import Condition
from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_formats import INPUT_FORMATS, InputFormat
from recordmill.schemas.records import OUTSIDE_WHERE, RENAMED, Location, Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.transforms.functional import sources
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.records.framing import SNIFFED_BYTES, is_tfrecord
from recordmill.transforms.functional.rows.batches import RowBatch, one_by_one
from recordmill.transforms.functional.sources import text_ranges
from recordmill.transforms.functional.sources.box_rows import grouped
from recordmill.transforms.functional.sources.tree import UNNAMED, Tree, parts_of
from recordmill.transforms.functional.values.typed import renamed_labels
from recordmill.transforms.inputs.file_tree import FileTree, excluded, pattern_of
from recordmill.transforms.storage.files import open_range, open_table, read

# All steps have the names of the columns; a file of 10 MB can have a million of them.
_MAX_COLUMNS = 100_000
_MAX_EXAMPLES = 100  # of rows outside of --where

# The elements that a reader yields.
Read: TypeAlias = RowBatch | Row | Reject | SkippedInput
Addresses: TypeAlias = Callable[[Row], Iterable[str]]


class _Reader(Protocol):
    """The functions of the module of a format; a source is a byte stream, or a `Tree`.

    A module may also have `parts(source, file)`, `recognize(head)`, `recognize_folder(tree)`,
    `sources_in(tree)`, `sources_of_file(tree, name)` and `named_images(source, file)`.
    """

    def probe(self, source: Any, file: tables.TableFile) -> tables.Probe:
        """Returns the columns; raises UsageError if the source cannot be read."""

    def read(self, source: Any, part: tables.Part, projection: tables.Projection) -> Iterator[Read]:
        """Yields the rows of a part, rejects and skipped inputs."""


@dataclass(frozen=True)
class Format:
    """How the sources of one format are recognized and read."""

    declared: InputFormat

    @cached_property
    def reader(self) -> _Reader:
        """The module of the format."""
        return cast("_Reader", import_module(f"{sources.__name__}.{self.declared.module}"))

    def recognize(self, head: bytes) -> bool:
        """Returns whether a file has the signature of the format."""
        return bool(self._optional("recognize")(head))

    def recognize_folder(self, tree: Tree) -> tables.Sources | None:
        """Returns the sources in a folder with a layout of the format; None for other folders."""
        return cast("tables.Sources | None", self._optional("recognize_folder")(tree))

    def sources_in(self, tree: Tree) -> tables.Sources | None:
        """Returns the sources in a folder whose format is stated; None if it has none."""
        found = cast("tables.Sources | None", self._optional("sources_in")(tree))
        return found or self.recognize_folder(tree)

    @property
    def has_images_beside(self) -> bool:
        """Whether files stand for a folder, or for images that are beside them."""
        return hasattr(self.reader, "sources_of_file")

    def sources_of_file(self, tree: Tree, name: str) -> tables.Sources:
        """Returns the sources that a file in a folder stands for."""
        return cast("tables.Sources", self._optional("sources_of_file")(tree, name))

    def _optional(self, name: str) -> Callable[..., Any]:
        """Returns a function that a module may have; without it, the result is None."""
        return getattr(self.reader, name, lambda *_: None)

    def probe(self, file: tables.TableFile) -> tables.Probe:
        """Returns the columns and other metadata of a source."""
        with self.opened(file) as source:
            found = self.reader.probe(source, file)
        if len(found.columns) > _MAX_COLUMNS:
            raise UsageError(
                f"{file.path}: has {len(found.columns):,} columns; at most {_MAX_COLUMNS:,} are "
                "read. Put values of one kind in a list column, as Parquet and JSONL have them."
            )
        return found

    def parts(self, file: tables.TableFile) -> Iterator[tables.Part | Reject | SkippedInput]:
        """Yields the parts of a source, and rejects and skipped inputs known before reading."""
        parts = getattr(self.reader, "parts", parts_of if self.declared.is_folder else None)
        if parts is None or file.grouped:
            yield tables.Part(file)
            return
        with self.opened(file) as source:
            yield from parts(source, file)

    def read(self, part: tables.Part, projection: tables.Projection) -> Iterator[Read]:
        """Yields the rows of one of the parts that `parts` yields."""
        file = part.file
        if file.grouped:
            boxes = self.ungrouped_rows(file, replace(projection, renamed={}))
            rows: Iterable[Read] = grouped(boxes, file.grouped, file.box)
            yield from _renamed(rows, projection) if projection.renamed else rows
            return
        # From the byte before it, which shows whether the range still begins with a line.
        part_of = (file.path, max(0, part.start - 1), part.stop or 0)
        with self.opened(file) if part.stop is None else open_range(*part_of) as source:
            if fault := _fault_before(part, source):
                yield Reject.of_lost_rows(file.path, part.first, fault)
                return
            rows = self.reader.read(source, part, projection)
            for column in file.encoded:
                if column == projection.image or column in projection.other_images:
                    rows = _with_decoded(rows, column, projection)
            if file.exclusion.patterns:
                rows = _not_excluded(rows, file.exclusion)
            if file.partition:
                rows = _with_partition(rows, file.partition, projection)
            rows = _selected(rows, projection.where) if projection.where else rows
            yield from _renamed(rows, projection) if projection.renamed else rows

    def rows(
        self, file: tables.TableFile, projection: tables.Projection
    ) -> Iterator[Row | Reject | SkippedInput]:
        """Yields the rows of a whole source, one by one."""
        for part in self.parts(file):
            if isinstance(part, tables.Part):
                yield from one_by_one(self.read(part, projection))

    def ungrouped_rows(
        self, file: tables.TableFile, projection: tables.Projection
    ) -> Iterator[Row | Reject | SkippedInput]:
        """Yields the rows of a whole source as they are in the table."""
        return self.rows(replace(file, grouped=""), projection)

    def first_rows(
        self, file: tables.TableFile, number: int, columns: tuple[str, ...] | None = None
    ) -> list[Row]:
        """Returns the first rows of a source, which has none if it cannot be read."""
        with suppress(OSError, ValueError):
            rows = islice(self.ungrouped_rows(file, tables.Projection(columns)), number)
            return [row for row in rows if isinstance(row, Row)]
        return []

    def opened(self, file: tables.TableFile) -> AbstractContextManager[Any]:
        """Opens a source for the functions of the module."""
        if self.declared.is_folder:
            return nullcontext(FileTree(file.path, file.exclusion))
        return open_table(file)


FORMATS = {name: Format(declared) for name, declared in INPUT_FORMATS.items()}


def unnamed_images(
    files: Sequence[tables.TableFile], columns: tuple[str, ...], addresses_of: Addresses
) -> Iterator[SkippedInput]:
    """Yields the images that are in the folder of some files, and named by none of their rows."""
    named = array("Q")
    for file in files:
        named.extend(map(_digest, _named_images(file, columns, addresses_of)))
    known, tree = np.sort(named), FileTree(files[0].image_folder, files[0].exclusion)
    images = (
        name for name in tree.walk() if isinstance(name, str) and sniffing.has_image_suffix(name)
    )
    digests = ((name, np.uint64(_digest(tree.path(name)))) for name in images)
    unnamed = [n for n, one in digests if one not in known[(i := known.searchsorted(one)) : i + 1]]
    if unnamed:
        yield SkippedInput.named(UNNAMED, unnamed)


def _named_images(
    file: tables.TableFile, columns: tuple[str, ...], addresses_of: Addresses
) -> Iterator[str]:
    """Yields the addresses of the images that a source names, also in rejected rows."""
    known = FORMATS[file.format]
    if hasattr(known.reader, "named_images"):
        with known.opened(file) as source:
            yield from cast("Any", known.reader).named_images(source, file)
        return
    for found in known.ungrouped_rows(file, tables.Projection(columns)):
        if isinstance(found, Row | Reject):
            yield from addresses_of(found) if isinstance(found, Row) else [found.uri]


def _digest(address: str) -> int:
    """Returns 8 bytes in place of an address: those of millions of images would fill the memory."""
    path = unicodedata.normalize("NFC", posixpath.normpath(address))
    data = path.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _with_decoded(
    rows: Iterable[Read], column: str, projection: tables.Projection
) -> Iterator[Read]:
    """Yields rows with the images that are text in a column; other texts are paths."""
    for row in one_by_one(rows):
        value = row.values.get(column) if isinstance(row, Row) else None
        if not isinstance(row, Row) or not sniffing.is_encoded(text := sniffing.text_of(value)):
            yield row
            continue
        values = {name: other for name, other in row.values.items() if name != column}
        if isinstance(value, dict) and (path := value.get("path")):
            values[column] = path
        size = Location(row.file, 0, 3 * len(text) // 4)  # an estimate for the analyze pass
        try:
            image = sniffing.image_of(text) if projection.pixels else size
        except RecordError as error:
            yield Reject("", "", row.source, error.reason, f"column {column!r}: {error.detail}")
            continue
        if column == projection.image:
            yield row._replace(values=values, image=image)
        else:
            yield row._replace(values={**values, column: image})


def _not_excluded(rows: Iterable[Read], exclusion: tables.Exclusion) -> Iterator[Read]:
    """Yields rows, and skipped inputs in place of those whose image is left out."""
    for row in one_by_one(rows):
        image = row.image if isinstance(row, Row) else None
        uri = image.uri if isinstance(image, Location) else ""
        pattern = pattern_of(exclusion, uri)
        yield excluded(pattern, uri.removeprefix(f"{exclusion.root}/")) if pattern else row


def _selected(rows: Iterable[Read], where: Condition) -> Iterator[Read]:
    """Yields the rows that a condition selects, and the number of the others."""
    outside, examples = 0, dict[str, tuple[str, ...]]()
    for found in rows:
        if not isinstance(found, Row | RowBatch):
            yield found
            continue
        batch = RowBatch.of([found]) if isinstance(found, Row) else found
        columns = [(name, batch.column(name), batch.untyped(name)) for name in where.columns]
        kept = list[int]()
        for number in range(len(batch)):
            try:
                values = {name: (cells[number], text) for name, cells, text in columns}
                if where.holds(values):
                    kept.append(number)
                    continue
                outside += 1
                # Most columns have few values: making a condition takes longer than testing one.
                if len(examples) < _MAX_EXAMPLES and (shown := str(values)) not in examples:
                    examples[shown] = tuple(where.of_values(values))
            except RecordError as error:
                yield Reject("", "", batch[number].source, error.reason, error.detail)
        if len(kept) == len(batch):
            yield found
        elif kept:
            yield batch.take(kept)
    if outside:
        names = chain.from_iterable(examples.values())
        yield SkippedInput.named(OUTSIDE_WHERE, names)._replace(number=outside)


def _renamed(rows: Iterable[Read], projection: tables.Projection) -> Iterator[Read]:
    """Yields rows with other class names, and the number of rows with each that is replaced."""
    counts, names = Counter[str](), projection.names
    for row in one_by_one(rows):
        if not isinstance(row, Row):
            yield row
            continue
        seen, values = set[str](), dict(row.values)
        for column, feature in projection.renamed.items():
            if column in values:
                value, is_text = values[column], row.untyped(column)
                values[column] = renamed_labels(value, feature, is_text, names, seen)
        counts.update(seen)
        yield row._replace(values=values) if seen else row
    yield from (SkippedInput(RENAMED.format(a, names[a]), n) for a, n in sorted(counts.items()))


def _fault_before(part: tables.Part, stream: BinaryIO) -> str:
    """Returns why the byte before a range is not the end of a line; "" if it is."""
    try:
        is_line = not part.start or stream.read(1) in (b"\n", b"\r")
    except (EOFError, OSError) as error:
        return f"the rest of the table cannot be read: {error}"
    return "" if is_line else "the table has changed since it was listed. Convert it again."


def cut_text(file: tables.TableFile, range_bytes: int) -> list[tables.Part]:
    """Returns the byte ranges of a large text table, cut anywhere."""
    with open_range(file.path, 0, file.size or 0) as stream:
        return list(text_ranges.cut(stream, file, range_bytes))


def scan_text(part: tables.Part) -> text_ranges.RangeScan | None:
    """Returns the scan of a byte range that `cut_text` gives; None if it cannot be scanned."""
    with open_range(part.file.path, 0, part.file.size or 0) as stream:
        return text_ranges.scan(stream, part)


_SHARD = re.compile(r"-\d+-of-\d+$")
_SPARK_JSON = re.compile(r"(^|/)part-[^/]+\.json(\.gz)?$")


def has_records(path: str) -> bool:
    """Returns whether a file has TFRecords by its content, whatever its name is."""
    try:
        return is_tfrecord(read(path, (0, SNIFFED_BYTES)))
    except OSError:
        return False


def format_of(path: str, head: bytes) -> str | None:
    """Returns the name of the format of a file by its signature, or else by its suffix."""
    files = {name: known for name, known in FORMATS.items() if not known.declared.is_folder}
    # Signatures take precedence over suffixes, which can be wrong or missing.
    for name, known in files.items() if head else ():
        if known.recognize(head):
            return name
    if is_spark_json(path):
        return "jsonl"
    # "x.tfrecord-00000-of-00010" has its suffix before the shard number.
    suffix = _SHARD.sub("", path.lower().removesuffix(".gz")).rpartition(".")[2]
    return next((n for n, known in files.items() if suffix in known.declared.suffixes), None)


def is_spark_json(name: str) -> bool:
    """Returns whether a file is named as Spark names its JSON output, which is JSON Lines."""
    return bool(_SPARK_JSON.search(name))


def _with_partition(
    rows: Iterable[Read], partition: tables.Partition, projection: tables.Projection
) -> Iterator[Read]:
    """Yields rows with the columns of their partition, whose values are untyped text."""
    names = projection.columns
    values = {column: value for column, value in partition if names is None or column in names}
    for row in rows:
        if isinstance(row, RowBatch):
            yield row.with_text(values)
        elif isinstance(row, Row):
            yield RowBatch.of([row]).with_text(values)[0]
        else:
            yield row


# What reads a table with a column per class.
_ONE_HOT = (
    "pandas: table = pandas.read_csv({0!r}, skipinitialspace=True); names = [*table.columns.drop("
    "{1!r})]; table['labels'] = table[names].apply(lambda row: [n for n in names if row[n]], axis=1"
    "); recordmill.convert(table, columns={{'image': {1!r}}}, image_root=FOLDER, "
    "schema='multi_label', classes=names, …)"
)

# Labels with a box each in one text, as of ImageNet at Kaggle, and what reads them.
_BOXES_OF_LABELS = re.compile(r"(?a)(?:(?![-.\d]+ )\S+(?: -?\d[\d.]*){4} ?)+")
_WITH_BOXES = (
    "pandas: table = pandas.read_csv({0!r}); boxes = table[{1!r}].str.extractall(r'(?P<labels>\\S+)"
    " (?P<xmin>\\S+) (?P<ymin>\\S+) (?P<xmax>\\S+) (?P<ymax>\\S+)').droplevel(1); "
    "table.join(boxes).drop(columns={1!r}).to_csv('boxes.csv', index=False)"
)


def code_of(file: tables.TableFile, labels: Collection[str] | None = None) -> tuple[str, str]:
    """Returns the name of what a table has in place of labels, and code for it; or twice "".

    It is a column per class, or text with labels and boxes. `labels`: the only columns to check.
    """
    row = first_row(file)
    for column in row if labels is None else row.keys() & labels:
        if _BOXES_OF_LABELS.fullmatch(row[column]):
            return f"labels with boxes in {column!r}", _WITH_BOXES.format(file.path, column)
    others = [c for c, value in row.items() if value.strip().removesuffix(".0") not in ("0", "1")]
    if labels is None and len(others) == 1 < len(row) - 1:
        return "a column per class", _ONE_HOT.format(file.path, others[0])
    return "", ""


def first_row(file: tables.TableFile) -> dict[str, str]:
    """Returns the first row of a text table that is not compressed; {} of others."""
    if file.format not in text_ranges.TEXT_FORMATS or file.path.lower().endswith(".gz"):
        return {}
    first = FORMATS[file.format].first_rows(file, 1)
    return {name: str(value) for row in first for name, value in row.values.items()}
