"""Finds tables beside images: metadata of Hugging Face's ImageFolder, and other label tables.

`train.csv` beside `train/` would make one class of all images, since class folders ignore tables.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row
from recordmill.schemas.tables import (
    FILE_NAME,
    SPLIT_NAMES,
    Projection,
    SourceSplit,
    TableFile,
)
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import delimited, json_lines, parquet
from recordmill.transforms.functional.sources.table_folders import is_table, partition_of
from recordmill.transforms.functional.sources.tree import Tree, stem_of

# The names that ImageFolder reads; each is in the folder to which its paths are relative.
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

# Formats and readers by suffix; text tables show their first row.
_TEXT = {
    ".csv": ("csv", delimited),
    ".tsv": ("tsv", delimited),
    ".jsonl": ("jsonl", json_lines),
    ".ndjson": ("jsonl", json_lines),
}
_READERS = {**_TEXT, ".parquet": ("parquet", parquet)}

# The folder of the splits in repositories of Hugging Face.
_DATA = "data"

# Most class folders are more; of fewer folders, each is searched for tables.
_MAX_FOLDERS = 8

# Names of folders with all images, not with those of a class.
_ALL_IMAGES = re.compile(r"images?|imgs?|photos?|pics?|jpe?gs?|pngs?|data|files|all|raw")
_WORD = re.compile(r"[a-z]+")

# Tables of Kaggle without labels.
_UNLABELED = re.compile(r"sample|submission|test", re.IGNORECASE)
_MAX_TABLES = 8


def tables_beside(tree: Tree) -> tuple[str, ...]:
    """Returns the tables in a folder, in its folders if these are few, and in data/SPLIT/."""
    top = tree.entries()
    folders = ["", *(top.folders if len(top.folders) <= _MAX_FOLDERS else ())]
    if _DATA in folders:
        below = (n for n in tree.entries(_DATA).folders if n.lower() in SPLIT_NAMES)
        folders += [posixpath.join(_DATA, name) for name in below]
    found = (posixpath.join(folder, n) for folder in folders for n in tree.entries(folder).files)
    return tuple(name for name in found if is_table(name))


def is_metadata(path: str) -> bool:
    """Returns whether a table has a name of ImageFolder's metadata."""
    return posixpath.basename(path) in _METADATA


def metadata_files(tree: Tree, tables: Sequence[str]) -> tuple[TableFile, ...]:
    """Returns the tables that are metadata of ImageFolder, with the splits of their folders.

    Raises UsageError if a file with such a name cannot be read as a table.
    """
    found = list[TableFile]()
    for name in tables:
        if is_metadata(name):
            input_format, reader = _READERS[_suffix(name)]
            folder = posixpath.dirname(name)
            file = TableFile(
                tree.path(name),
                input_format,
                partition=partition_of(name),
                key_prefix=f"{folder}/" if folder else "",
            )
            with tree.open(name) as stream:
                if FILE_NAME in reader.probe(stream, file).columns:
                    found.append(file)
    return tuple(found)


def check_has_classes(tree: Tree, tables: Sequence[str]) -> None:
    """Checks that the folders of a folder with tables can be classes.

    Raises UsageError if they cannot; it names the options that read the table.
    """
    folders = [name for name in tree.entries().folders if _may_have_images(tree, name)]
    if len(folders) > 1 and not all(map(_has_all_images, folders)):
        return
    images = {folder: _names_and_stems(tree, folder) for folder in ("", *folders)}
    guesses = [_guess(tree, name, images) for name in _labeled_first(tables)]
    best = max(guesses, key=lambda guess: guess.is_complete)  # the first one of the best
    places = " in " + " and ".join(f"{name}/" for name in folders) if folders else ""
    raise UsageError(
        f"{tree.root}: expected a folder per class, got images{places} beside "
        f"{' and '.join(tables)}. To read a table, use {best.options}. To make folders the "
        "classes, add --input_format folder."
    )


def _may_have_images(tree: Tree, folder: str) -> bool:
    folders, files = tree.entries(folder)
    return bool(folders) or not all(map(is_table, files))


def _has_all_images(folder: str) -> bool:
    """Returns whether a folder is named like those with all images, such as train_images."""
    words = _WORD.findall(folder.lower())
    return all(word in SPLIT_NAMES or _ALL_IMAGES.fullmatch(word) for word in words)


def _names_and_stems(tree: Tree, folder: str) -> frozenset[str]:
    files = [name for name in tree.entries(folder).files if not is_table(name)]
    return frozenset(map(_one_form, (*files, *map(stem_of, files))))


def _one_form(name: str) -> str:
    """Returns a name in the Unicode form of most tables; macOS names files in the other one."""
    return unicodedata.normalize("NFC", name)


def _labeled_first(tables: Sequence[str]) -> list[str]:
    return sorted(tables, key=lambda name: bool(_UNLABELED.search(name)))[:_MAX_TABLES]


class _Guess(NamedTuple):
    """Options that read a table, and whether they name its columns."""

    options: str
    is_complete: bool


def _guess(tree: Tree, table: str, images: dict[str, frozenset[str]]) -> _Guess:
    """Returns the options that read a table, by the values of its first row.

    `images` are the names of the images by folder, with and without a suffix.
    """
    row = _first_row(tree, table)
    # Deeper folders first: a path may exist in the folder of the table, too.
    found = (
        (column, folder)
        for folder in reversed(images)
        for column, value in row.items()
        if _one_form(value) in images[folder]
        or ("/" in value and tree.has(posixpath.join(folder, value)))
    )
    image, folder = next(found, ("COLUMN", next(reversed(images))))
    others = [column for column in row if column != image]
    label = "label" if "label" in others else others[0] if len(others) == 1 else "COLUMN"
    names = {"image": image, "label": label}
    mapped = ",".join(f"{role}={column}" for role, column in names.items() if role != column)
    has_own_root = folder == posixpath.dirname(table)
    options = (
        f"--input {_quoted(tree, table)}",
        "" if has_own_root else f"--image_root {_quoted(tree, folder)}",
        f"--columns {shlex.quote(mapped)}" if mapped else "",
        f"(columns: {', '.join(row)})" if row and "COLUMN" in names.values() else "",
    )
    is_complete = image != "COLUMN" and bool(others)
    return _Guess(" ".join(filter(None, options)), is_complete)


def _quoted(tree: Tree, name: str) -> str:
    return shlex.quote(tree.path(name))


def _first_row(tree: Tree, table: str) -> dict[str, str]:
    """Returns the first row of a text table; {} if there is none."""
    if _suffix(table) not in _TEXT:
        return {}
    input_format, reader = _TEXT[_suffix(table)]
    split = SourceSplit(TableFile(tree.path(table), input_format))
    try:
        with tree.open(table) as stream:
            rows = one_by_one(reader.read(stream, split, Projection()))
            first = next((row for row in rows if isinstance(row, Row)), None)
    except (OSError, ValueError):  # reported when the table is read
        return {}
    return {name: str(value) for name, value in first.values.items()} if first else {}


def _suffix(name: str) -> str:
    return posixpath.splitext(name)[1].lower()
