"""Sources of rows: their files, splits and probes, and the projection of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding

# Columns and values that the folders of a file state, as in `split=train/`; None if it is missing.
Partition: TypeAlias = tuple[tuple[str, str | None], ...]

# The reported type of a bytes column with images, in formats without column types.
IMAGES = "images"

# The column with the split of a row, in sources that state it by their folders or file names.
SPLIT = "split"

# The column of image paths in Hugging Face's ImageFolder.
FILE_NAME = "file_name"

# Names that folders and files of splits commonly have, in lower case.
SPLIT_NAMES = frozenset(
    {"train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing"}
)


@dataclass(frozen=True)
class DataFile:
    """How a table of Delta or Iceberg reads one of its Parquet files.

    Attributes:
        template: a row with the columns of the table, and their values where the file lacks them;
            see `recordmill.transforms.functional.sources.data_files`.
        deleted: the numbers of its deleted rows; b"" if there are none.
    """

    template: bytes
    deleted: bytes = b""


class Metadata(NamedTuple):
    """The files beside TFRecord files that describe their records.

    Attributes:
        folder: their folder, such as that of a published dataset.
        sha256: the digest of their content, by which a change during the run is noticed.
    """

    folder: str
    sha256: str


@dataclass(frozen=True)
class TableFile:
    """An input file, or an input folder for formats that are folders.

    Attributes:
        path: its path, which is the source of its rows, and the base of relative image paths.
        format: one of `recordmill.transforms.storage.formats.FORMATS`.
        gzipped: whether the file is compressed.
        size: size in bytes, if byte ranges can be read; None otherwise.
        delimiter: the character between the fields of a CSV or TSV table, or "" for the default.
        header: the columns of a CSV or TSV table without a header; () if its first row is one.
        partition: columns of the table that its folders state, or its name.
        images: the base of relative image paths, or None for the folder of the file.
        has_split_folders: whether folders named like splits are the splits; those of class folders
            are at the top.
        yaml: the file with the classes of YOLO, such as data.yaml, relative to the folder, or "".
        key_prefix: the folder that keys begin with, so that `1.jpg` of two folders differs.
        data_file: how its lakehouse table reads the file; None for other files.
        metadata: what describes the records of a TFRecord file; None if there is nothing.
    """

    path: str
    format: str
    gzipped: bool = False
    size: int | None = None
    delimiter: str = ""
    header: tuple[str, ...] = ()
    partition: Partition = ()
    images: str | None = None
    has_split_folders: bool = False
    yaml: str = ""
    key_prefix: str = ""
    data_file: DataFile | None = None
    metadata: Metadata | None = None


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
        labels: the columns with class labels, whose names are read where the source has ids.
        drops_boxes: whether an annotation without a valid box loses only its box.
    """

    columns: tuple[str, ...] | None = None
    image: str = ""
    pixels: bool = False
    image_root: str | None = None
    max_image_bytes: int = 256 * 2**20
    labels: frozenset[str] = frozenset()
    drops_boxes: bool = False

    def has(self, column: str) -> bool:
        """Returns whether a column is projected."""
        return self.columns is None or column in self.columns

    def apply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the projected columns of a row."""
        if self.columns is None:
            return flat_values(values)
        found = {name: values[name] for name in self.columns if name in values}
        if len(found) < len(self.columns):
            below = {n: field_of(values, n) for n in self.columns if n not in found and "." in n}
            found |= {name: value for name, value in below.items() if value is not ABSENT}
        return found


@dataclass(frozen=True)
class DeclaredClasses:
    """The classes that a source declares for a column of labels.

    Attributes:
        names: (id in the source, name) of each class, in the order of the ids of the dataset.
        by_id: whether integers in the column are ids of the source.
        are_names: whether integers in the column are names, as those of folders are.
        conflict: how the sources differ in their ids, or "".
        unused: names of classes without an id in the source, which no row may have.
        unnamed: the feature of a source with ids that have no names; "" if there is none.
        by_name: whether labels are names, so that ids of other sources can be changed.
    """

    names: tuple[tuple[int, str], ...]
    by_id: bool = False
    are_names: bool = False
    conflict: str = ""
    unused: tuple[str, ...] = ()
    unnamed: str = ""
    by_name: bool = False

    def merge(self, other: DeclaredClasses, where: str) -> DeclaredClasses:
        """Returns the classes of two sources, ordered by id.

        If the sources contradict each other, the classes of this source come first; labels that
        are ids cannot be merged then.

        Args:
            other: the classes of another source for the same column.
            where: the other source and the column, for messages.

        Raises:
            UsageError: if they contradict each other, and the labels are ids.
        """
        ids, by_name = dict(self.names), {name: id_ for id_, name in self.names}
        if self.by_name and other.by_name:
            for id_, name in other.names:
                if name not in by_name:
                    by_name[name] = id_ if id_ not in ids else max(ids) + 1
                    ids[by_name[name]] = name
            unnamed = self.unnamed or other.unnamed
            return replace(self, names=tuple(sorted(ids.items())), unnamed=unnamed)
        changed = [
            f"id {id_} is {name!r}, and {ids[id_]!r} in a file before"
            if id_ in ids
            else f"the id of {name!r} is {id_}, and {by_name[name]} in a file before"
            for id_, name in other.names
            if ids.get(id_, name) != name or by_name.get(name, id_) != id_
        ]
        by_id = self.by_id or other.by_id
        if changed and by_id:
            raise UsageError(
                f"{where}: {changed[0]}. Convert the files separately, or replace the ids by names."
            )
        added = [(id_, name) for id_, name in other.names if name not in by_name]
        merged = [*self.names, *added] if changed else sorted({*self.names, *added})
        conflict = self.conflict or "".join(f"{where}: {change}" for change in changed[:1])
        return DeclaredClasses(
            tuple(merged),
            by_id,
            self.are_names or other.are_names,
            conflict,
            tuple(sorted({*self.unused, *other.unused})),
            self.unnamed or other.unnamed,
        )


NO_CLASSES = DeclaredClasses(())


@dataclass(frozen=True)
class Probe:
    """Metadata from the beginning of a source.

    Attributes:
        columns: the names of the columns, from the schema or the first rows.
        has_rows: whether the source has a row.
        unsupported: types of the columns that cannot become features, by column.
        embedded: the columns that may contain image bytes.
        structs: the columns of structs, whose fields are columns of their own.
        classes: the classes that the source declares, by column.
        splits: the splits that the source states in the column `SPLIT`.
        preset: the preset whose features the columns have, if it is not the default.
        findings: what was noticed.
        schema: the schema that wrote the records of a dataset; None for other sources.
        raw: the columns of unencoded pixels, with their shape.
        derived: the columns that have values of other columns, under the names of a schema.
    """

    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()
    structs: frozenset[str] = frozenset()
    classes: Mapping[str, DeclaredClasses] = field(default_factory=dict)
    splits: tuple[str, ...] = ()
    preset: str = ""
    findings: tuple[Finding, ...] = ()
    schema: Schema | None = None
    raw: Mapping[str, str] = field(default_factory=dict)
    derived: frozenset[str] = frozenset()


# The value of a column that a row does not have.
ABSENT: Any = object()


def field_of(values: Mapping[str, Any], path: str) -> Any:
    """Returns the value of a field within the objects of a row; `ABSENT` if there is none.

    Args:
        values: the values of the row by column.
        path: a column and a field, such as `patient.id`; in a list of objects, it names the list of
            their fields.

    >>> field_of({"objects": [{"bbox": [1, 2]}, {"bbox": [3, 4]}]}, "objects.bbox")
    [[1, 2], [3, 4]]
    """
    name, at = path, path.find(".")
    while at >= 0:
        if isinstance(below := values.get(name[:at]), dict | list):
            found = _field(below, name[at + 1 :])
            if found is not ABSENT:
                return found
        at = name.find(".", at + 1)
    return ABSENT


def _field(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value[name] if name in value else field_of(value, name)
    if not isinstance(value, list) or not any(isinstance(item, dict) for item in value):
        return [] if value == [] else ABSENT
    found = [_field(item, name) for item in value]
    if all(item is ABSENT for item in found):
        return ABSENT
    return [None if item is ABSENT else item for item in found]


def column_names(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the columns of a row, each followed by the fields of its objects.

    >>> list(column_names({"id": 7, "objects": [{"bbox": [1, 2]}, {"class": 3}]}))
    ['id', 'objects', 'objects.bbox', 'objects.class']
    """
    for name, value in values.items():
        yield name
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from (f"{name}.{field}" for field in column_names(item))


def flat_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a row with a column for each field of its objects, except for images.

    >>> flat_values({"id": 7, "patient": {"age": 40, "name": {"last": "Doe"}}})
    {'id': 7, 'patient.age': 40, 'patient.name.last': 'Doe'}
    """
    if not any(isinstance(value, dict) for value in values.values()):
        return dict(values)
    found = dict[str, Any]()
    for name, value in values.items():
        # A dict with bytes is an image, as Hugging Face Datasets represents it.
        is_object = isinstance(value, dict) and "bytes" not in value
        below = flat_values(value) if is_object else {}
        found |= {f"{name}.{field}": inner for field, inner in below.items()} or {name: value}
    return found
