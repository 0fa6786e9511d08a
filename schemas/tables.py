"""Sources of rows: their files, parts and probes, and the projection of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.condition import Condition
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.input_formats import INPUT_FORMATS, InputFormat
from recordmill.schemas.plan import TableSnapshot

_Options = TypeVar("_Options")

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
class Exclusion:
    """The files and folders below a folder that are left out."""

    root: str = ""  # the folder, without a trailing slash
    patterns: tuple[str, ...] = ()  # as in .gitignore, relative to the folder


NO_EXCLUSION = Exclusion()


@dataclass(frozen=True)
class TableFile:
    """An input file, or an input folder for formats that are folders."""

    path: str  # its path, which is the source of its rows, and the base of relative image paths
    format: str  # one of `recordmill.schemas.input_formats.INPUT_FORMATS`
    gzipped: bool = False
    size: int | None = None  # size in bytes, if byte ranges can be read; None otherwise
    partition: Partition = ()  # columns of the table that its folders state, or its name
    key_prefix: str = ""  # the folder that keys begin with, so that `1.jpg` of two folders differs
    grouped: str = ""  # the column of images, of a table with a row per box; "" for others
    box: str = ""  # its column with all numbers of a box, if there is one
    encoded: tuple[str, ...] = ()  # the columns with images as base64 or data URIs
    exclusion: Exclusion = NO_EXCLUSION
    # The folder whose images its rows name, with those of the other files of the folder; or "".
    image_folder: str = ""
    # What only the module of its format reads, as an immutable value of a type that it declares;
    # None for its defaults.
    options: object = None

    @property
    def declared(self) -> InputFormat:
        """The declaration of its format."""
        return INPUT_FORMATS[self.format]

    def options_of(self, kind: type[_Options]) -> _Options:
        """Returns the options of the format, which are of this type, or their defaults."""
        if self.options is None:
            return kind()
        if not isinstance(self.options, kind):
            raise TypeError(f"{self.path}: expected {kind.__name__}, got {self.options!r}")
        return self.options


class Sources(NamedTuple):
    """What a path was recognized as: its files or folders, to be read in their formats."""

    files: tuple[TableFile, ...]
    text: str = ""  # a description for users; "" for plain class folders
    snapshot: TableSnapshot | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Part:
    """The unit that one worker reads: a file or a part of one, or some files of a folder."""

    file: TableFile  # the file or folder
    row_group: int | None = None  # the number of a row group, or None for the whole file
    # The number of its first row in the file, from 1; in text tables, its first line.
    first: int = 1
    names: tuple[str, ...] = ()  # the paths of files in a folder, relative to the folder
    start: int = 0  # the first byte of a range of a text table
    stop: int | None = None  # the byte after the range, or None for the whole file
    header: tuple[str, ...] = ()  # the columns of a CSV or TSV table, for ranges after the header


@dataclass(frozen=True)
class Projection:
    """The columns, and the images, that a reader returns."""

    columns: tuple[str, ...] | None = None  # the columns to keep, or None for all
    image: str = ""  # the column of the first image, or "" to read no images
    other_images: tuple[str, ...] = ()  # the columns of other images and masks
    # Whether to read the bytes of embedded images; the analyze pass needs only their sizes, and an
    # estimate will do.
    pixels: bool = False
    # Base of relative image paths, or None for the default of the source.
    image_root: str | None = None
    # The size in bytes of the largest image read from a compressed source.
    max_image_bytes: int = 256 * 2**20
    # The columns with class labels, whose names are read where the source has ids.
    labels: frozenset[str] = frozenset()
    drops_boxes: bool = False  # whether an annotation without a valid box loses only its box
    where: Condition | None = None  # selects rows; None for all
    # The feature of each column of labels to rename, and the class names to replace in it.
    renamed: Mapping[str, Feature] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # those that a row without columns of a table must have

    def has(self, column: str) -> bool:
        """Returns whether a column is projected."""
        return self.columns is None or column in self.columns

    def apply(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the projected columns of a row."""
        if self.columns is None:
            return _flat_values(values)
        found = {name: values[name] for name in self.columns if name in values}
        if len(found) < len(self.columns):
            below = {n: _field_of(values, n) for n in self.columns if n not in found and "." in n}
            found |= {name: value for name, value in below.items() if value is not ABSENT}
        return found


@dataclass(frozen=True)
class DeclaredClasses:
    """The classes that a source declares for a column of labels."""

    # (id in the source, name) of each class, in the order of the ids of the dataset.
    names: tuple[tuple[int, str], ...]
    by_id: bool = False  # whether integers in the column are ids of the source
    are_names: bool = False  # whether integers in the column are names, as those of folders are
    conflict: str = ""  # how the sources differ in their ids, or ""
    # Names of classes without an id in the source, which no row may have.
    unused: tuple[str, ...] = ()
    unnamed: str = ""  # the feature of a source with ids that have no names; "" if there is none
    by_name: bool = False  # whether labels are names, so that ids of other sources can be changed

    def merge(self, other: DeclaredClasses, where: str) -> DeclaredClasses:
        """Returns the classes of two sources, ordered by id.

        If the sources contradict each other, the classes of this source come first, or UsageError
        is raised if the labels are ids.
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

    def renamed(self, names: Mapping[str, str]) -> DeclaredClasses:
        """Returns the classes with other names; equal ones become the class that had the name."""
        places = {name: at for at, (_, name) in enumerate(self.names) if name not in names}
        for at, (_, name) in enumerate(self.names):
            places.setdefault(names.get(name, name), at)
        kept = sorted((at, name) for name, at in places.items())
        return replace(
            self,
            names=tuple((self.names[at][0], name) for at, name in kept),
            unused=tuple(sorted({names.get(name, name) for name in self.unused})),
        )


NO_CLASSES = DeclaredClasses(())


@dataclass(frozen=True)
class Probe:
    """Metadata from the beginning of a source."""

    columns: tuple[str, ...]  # the names of the columns, from the schema or the first rows
    has_rows: bool
    # Types of the columns that cannot become features, by column.
    unsupported: Mapping[str, str] = field(default_factory=dict)
    embedded: frozenset[str] = frozenset()  # the columns that may contain image bytes
    # The columns of structs, whose fields are columns of their own.
    structs: frozenset[str] = frozenset()
    classes: Mapping[str, DeclaredClasses] = field(default_factory=dict)
    splits: tuple[str, ...] = ()  # the splits that the source states in the column `SPLIT`
    preset: str = ""  # the preset whose features the columns have, if it is not the default
    findings: tuple[Finding, ...] = ()
    # The schema that wrote the records of a dataset; None for other sources.
    schema: Schema | None = None
    # The columns of unencoded pixels, with their shape.
    raw: Mapping[str, str] = field(default_factory=dict)
    # The features of records that columns read, under the names of a schema.
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# The value of a column that a row does not have.
ABSENT: Any = object()


def _field_of(values: Mapping[str, Any], path: str) -> Any:
    """Returns the value of a field within the objects of a row; `ABSENT` if there is none.

    `path` is a column and a field, such as `patient.id`; in a list of objects, it names the list of
    their fields.

    >>> _field_of({"objects": [{"bbox": [1, 2]}, {"bbox": [3, 4]}]}, "objects.bbox")
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
        return value[name] if name in value else _field_of(value, name)
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


def _flat_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a row with a column for each field of its objects, except for images.

    >>> _flat_values({"id": 7, "patient": {"age": 40, "name": {"last": "Doe"}}})
    {'id': 7, 'patient.age': 40, 'patient.name.last': 'Doe'}
    """
    if not any(isinstance(value, dict) for value in values.values()):
        return dict(values)
    found = dict[str, Any]()
    for name, value in values.items():
        # A dict with bytes is an image, as Hugging Face Datasets represents it.
        is_object = isinstance(value, dict) and "bytes" not in value
        below = _flat_values(value) if is_object else {}
        found |= {f"{name}.{field}": inner for field, inner in below.items()} or {name: value}
    return found
