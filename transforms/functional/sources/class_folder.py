"""Reads folders of images, in which the top-level folder of an image, at any depth, is its class.

If the top-level folders are splits, as in train/cat/1.jpg, the folders in them are the classes.
Also defines the interface of folders to their readers, and the splits of a folder.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import BinaryIO, NamedTuple, Protocol

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import (
    SPLIT,
    SPLIT_NAMES,
    DeclaredClasses,
    Probe,
    Projection,
    SourceSplit,
    TableFile,
)
from recordmill.transforms.functional.images.sniffing import (
    HEAD_BYTES,
    has_image_suffix,
    is_image,
)

COLUMNS = ("image", "label", "id")

NO_IMAGE = "files that are not images"

# Files per source split: few enough for a folder to keep many workers busy, and enough to make the
# cost of a split negligible.
SPLIT_FILES = 1000


class Unlisted(NamedTuple):
    """A file or folder that cannot be listed.

    Attributes:
        name: the path below the root, with invalid UTF-8 escaped.
        why: the error message.
    """

    name: str
    why: str


class Entries(NamedTuple):
    """The files and folders directly in a folder, sorted, without hidden ones.

    Attributes:
        folders: the names of the folders.
        files: the names of the files.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]


class Tree(Protocol):
    """The interface of a local or remote folder with all files below it."""

    @property
    def root(self) -> str:
        """The path of the folder, without a trailing slash."""

    def walk(self) -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the path of each file below the root, and skipped inputs for hidden files."""

    def entries(self, name: str = "") -> Entries:
        """Returns the files and folders directly in a folder; none if it does not exist."""

    def path(self, name: str) -> str:
        """Returns the full path of a file; its name may begin with `../`."""

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""

    def has(self, name: str) -> bool:
        """Returns whether a file or folder of this name exists below the root."""


def is_hidden(name: str) -> bool:
    """Returns whether a name is that of a hidden file or of a system file such as Thumbs.db."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def splits_of_names(file: TableFile, names: Iterable[str]) -> Iterator[SourceSplit]:
    """Yields source splits of up to `SPLIT_FILES` files.

    Args:
        file: the folder as a source.
        names: the paths of the files below it.
    """
    remaining = iter(names)
    while names_of_split := tuple(islice(remaining, SPLIT_FILES)):
        yield SourceSplit(file, names=names_of_split)


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns of a folder of images.

    Args:
        tree: the folder.
        file: the folder as a source.

    Raises:
        UsageError: if it contains no image.
    """
    for found in tree.walk():
        if isinstance(found, Unlisted) or (isinstance(found, str) and _is_row(tree, found)):
            classes = {"label": DeclaredClasses((), are_names=True)}
            if not file.has_split_folders:
                return Probe(COLUMNS, has_rows=True, classes=classes)
            splits = tree.entries().folders
            return Probe((*COLUMNS, SPLIT), has_rows=True, classes=classes, splits=splits)
    raise UsageError(
        f"{file.path}: the folder contains no image; expected a table, or images in folders named "
        "after their classes"
    )


def has_split_folders(tree: Tree) -> bool:
    """Returns whether the top-level folders are splits, and the folders in them are classes."""
    names = tree.entries().folders
    are_splits = bool(names) and all(name.lower() in SPLIT_NAMES for name in names)
    return are_splits and any(tree.entries(name).folders for name in names)


def split(
    tree: Tree, file: TableFile, accepts: Callable[[str], bool] = bool
) -> Iterator[SourceSplit | Reject | SkippedInput]:
    """Yields source splits of the files in a folder, then rejects and skipped inputs.

    Args:
        tree: the folder.
        file: the folder as a source.
        accepts: returns whether the source includes a file; other files are ignored.
    """
    others: list[Reject | SkippedInput] = []

    def names() -> Iterator[str]:
        for found in tree.walk():
            if isinstance(found, str):
                if accepts(found):
                    yield found
            else:
                others.append(_unlisted(tree, found) if isinstance(found, Unlisted) else found)

    # Names are listed while their splits are yielded, so `others` is complete only after the last.
    yield from splits_of_names(file, names())
    yield from others


def read(
    tree: Tree, split: SourceSplit, projection: Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image, and the skipped files.

    Args:
        tree: the folder.
        split: some of its files.
        projection: the columns to keep.
    """
    skipped: list[str] = []
    for name in split.names:
        try:
            is_row = _is_row(tree, name)
        except OSError as error:
            uri = tree.path(name)
            yield Reject("", uri, uri, Reason.READ_ERROR, str(error.strerror or error))
            continue
        if is_row:
            yield _row(tree, name, split.file, projection)
        else:
            skipped.append(name)
    if skipped:
        yield SkippedInput.named(NO_IMAGE, skipped)


def values_of(name: str, has_split_folders: bool = False) -> dict[str, str]:
    """Returns the values of an image by column, from its path below the folder.

    Args:
        name: the path.
        has_split_folders: whether the top-level folder is the split.

    >>> values_of("cats/tabby/1.b.jpg")
    {'image': 'cats/tabby/1.b.jpg', 'label': 'cats', 'id': '1.b'}
    >>> values_of("train/cats/1.jpg", has_split_folders=True)
    {'image': 'train/cats/1.jpg', 'label': 'cats', 'id': '1', 'split': 'train'}
    """
    *folders, _ = name.split("/")
    # Images directly in the folder have neither, and those directly in a split have no label.
    roles = (SPLIT, "label") if has_split_folders else ("label",)
    values = {"image": name, "id": stem_of(name), **dict(zip(roles, folders, strict=False))}
    return {column: values[column] for column in (*COLUMNS, SPLIT) if column in values}


def stem_of(name: str) -> str:
    """Returns the name of a file without its folder and last suffix."""
    return posixpath.splitext(posixpath.basename(name))[0]


def _row(tree: Tree, name: str, file: TableFile, projection: Projection) -> Row:
    uri, values = tree.path(name), values_of(name, file.has_split_folders)
    return Row(projection.apply(values), uri, 0, is_text=True, image=Location(uri))


def _is_row(tree: Tree, name: str) -> bool:
    """Returns whether a file is an image, by its suffix or its signature."""
    # Opening every file would be slow in an object store: only unknown suffixes need it.
    if has_image_suffix(name):
        return True
    with tree.open(name) as stream:
        return is_image(stream.read(HEAD_BYTES))


def _unlisted(tree: Tree, found: Unlisted) -> Reject:
    source = tree.path(found.name)
    return Reject("", "", source, Reason.READ_ERROR, found.why)
