"""Reads folders of images, in which the top-level folder of an image, at any depth, is its class.

If the top-level folders are splits, as in train/cat/1.jpg, the folders in them are the classes.
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, some
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.statistics import EXAMPLES
from recordmill.schemas.tables import (
    SPLIT,
    SPLIT_NAMES,
    DeclaredClasses,
    Part,
    Probe,
    Projection,
    Sources,
    TableFile,
)
from recordmill.transforms.functional.images.sniffing import (
    FOREIGN,
    HEAD_BYTES,
    foreign,
    has_image_suffix,
    is_image,
)
from recordmill.transforms.functional.sources.tree import (
    NO_IMAGE,
    NO_SPLIT,
    Tree,
    has_file,
    stem_of,
)

COLUMNS = ("image", "label", "id")

# Class folders that are searched for the same folders in them: one request each in a store.
_MAX_NESTED = 100


@dataclass(frozen=True)
class FolderOptions:
    """What is known of a folder of images before it is read."""

    has_split_folders: bool = False  # whether the folders at the top are splits


def sources_in(tree: Tree) -> Sources:
    """Returns a folder with images in class folders as a source."""
    splits = _split_folders(tree)
    findings = tuple(_doubtful_classes(tree, splits))
    file = TableFile(tree.root, "folder", options=FolderOptions(bool(splits)))
    if splits:
        return Sources((file,), "class folders within split folders", findings=findings)
    names = tree.entries().folders
    named = [name for name in names if name.lower() in SPLIT_NAMES]
    if not named:
        return Sources((file,), findings=findings)
    others = [name for name in names if name not in named]
    why = f"{others[0]!r} is not the name of a split" if others else "they contain no folders"
    what = "classes, not splits" if len(named) > 1 else "a class, not a split"
    text = f"{', '.join(named)}: {what}, because {why}"
    if len(named) < 2:
        return Sources((file,), f"class folders; {text}", findings=findings)
    doubtful = Finding(
        kind="splits_as_classes",
        severity="warning",
        text=f"{tree.root}: {text}",
        hint="for labels in a table: --input TABLE --image_root DIR; for images without labels: "
        "--split_column label, and a schema without classes",
        examples=tuple(named[:EXAMPLES]),
    )
    return Sources((file,), "class folders", findings=(*findings, doubtful))


def _doubtful_classes(tree: Tree, splits: Sequence[str]) -> Iterator[Finding]:
    """Yields a warning if folders below the class folders look like the classes."""
    if found := _only_class(tree, splits):
        label, folder, below = found
        each = "each split as in " if splits else ""
        yield Finding(
            kind="only_class",
            severity="warning",
            text=f"{tree.root}: all images have the same class, {label!r}, "
            f"although they are in different folders ({some(below)}). If these are the classes, "
            f"convert {each}--input {shlex.quote(tree.path(folder))}",
            examples=below[:EXAMPLES],
        )
    elif repeated := _repeated_folders(tree, splits):
        folder, below = repeated
        yield Finding(
            kind="repeated_folders",
            severity="warning",
            text=f"{tree.root}: the folders of different classes contain the same folders "
            f"({some(below)}). If these are the classes, convert each as in --input "
            f"{shlex.quote(tree.path(folder))}, or name the upper folders like splits: train, test",
            examples=below[:EXAMPLES],
        )


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns of a folder of images.

    Raises UsageError if it contains no image.
    """
    others = Counter[str]()
    for found in tree.walk():
        if isinstance(found, SkippedInput):
            continue
        if isinstance(found, str) and (other := _other_kind(tree, found)) is not None:
            others[other] += 1
        else:
            has_splits = file.options_of(FolderOptions).has_split_folders
            splits = _split_folders(tree) if has_splits else ()
            labels = DeclaredClasses((), are_names=True, unused=_empty_classes(tree, splits))
            columns = (*COLUMNS, SPLIT) if splits else COLUMNS
            return Probe(columns, has_rows=True, classes={"label": labels}, splits=splits)
    del others[NO_IMAGE]
    seen = ", ".join(f"{number:,} {kind}" for kind, number in sorted(others.items()))
    remedies = " ".join(kind.remedy for kind in FOREIGN.values() if kind.files in others)
    raise UsageError(
        f"{file.path}: the folder contains no image{f' but {seen}' if seen else ''}; expected a "
        f"table, or images in folders named after their classes{f'. {remedies}' if seen else ''}"
    )


def _split_folders(tree: Tree) -> tuple[str, ...]:
    """Returns the top-level folders if they are splits with classes in them; () otherwise.

    Other folders do not matter unless they have images.
    """
    folders = tree.entries().folders
    names = tuple(name for name in folders if name.lower() in SPLIT_NAMES)
    if not any(tree.entries(name).folders for name in names):
        return ()
    others = (name for name in folders if name not in names)
    return () if any(has_file(tree, name, has_image_suffix) for name in others) else names


def _only_class(tree: Tree, splits: Sequence[str]) -> tuple[str, str, tuple[str, ...]] | None:
    """Returns the only class, a folder in it with other folders, and their names; or None."""
    found = list[str]()
    for name in _with_images(tree, splits):
        if found and posixpath.basename(name) != posixpath.basename(found[0]):
            return None
        found.append(name)
    label, below = posixpath.basename(found[0]) if found else "", _folders_in(tree, found)
    while len(below) == 1:  # data/images/cat, data/images/dog
        found = [posixpath.join(name, below[0]) for name in found]
        below = _folders_in(tree, found)
    return (label, found[0], below) if below else None


def _repeated_folders(tree: Tree, splits: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Returns a folder in a class, and the names of folders in it that the others have; or None.

    Returns None if images are beside these folders, which ends the search at the first class of
    most datasets.
    """
    first, common, labels = "", set[str](), set[str]()
    for name in islice(_with_images(tree, splits), _MAX_NESTED):
        folders, files = tree.entries(inner := _innermost(tree, name))
        common = common & {*folders} if first else {*folders}
        if len(common) < 2 or any(map(has_image_suffix, files)):
            return None
        first = first or inner
        labels.add(posixpath.basename(name))
    return (first, tuple(sorted(common))) if len(labels) > 1 else None


def _with_images(tree: Tree, splits: Sequence[str]) -> Iterator[str]:
    """Yields the class folders with images."""
    classes = _class_folders(tree, splits)
    return (name for name in classes if has_file(tree, name, has_image_suffix))


def _folders_in(tree: Tree, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({folder for name in names for folder in tree.entries(name).folders}))


def _innermost(tree: Tree, folder: str) -> str:
    """Returns a folder, or the one in it if it contains nothing else, as in data/images."""
    while len(folders := tree.entries(folder).folders) == 1:
        if any(map(has_image_suffix, tree.entries(folder).files)):
            break
        folder = posixpath.join(folder, folders[0])
    return folder


def names_of(tree: Tree) -> set[str]:
    """Returns the names of the class folders."""
    return {posixpath.basename(name) for name in _class_folders(tree, _split_folders(tree))}


def _class_folders(tree: Tree, splits: Sequence[str]) -> list[str]:
    tops = splits or ("",)
    return [posixpath.join(top, name) for top in tops for name in tree.entries(top).folders]


def _empty_classes(tree: Tree, splits: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of class folders without files, sorted."""
    empty = filter(tree.is_empty, _class_folders(tree, splits))
    return tuple(sorted({posixpath.basename(name) for name in empty}))


def read(tree: Tree, part: Part, projection: Projection) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image, and the skipped files."""
    skipped = defaultdict[str, list[str]](list)
    has_splits = part.file.options_of(FolderOptions).has_split_folders and projection.has(SPLIT)
    for name in part.names:
        try:
            other = _other_kind(tree, name)
        except OSError as error:
            uri = tree.path(name)
            yield Reject("", uri, uri, Reason.READ_ERROR, str(error.strerror or error))
            continue
        if other is not None:
            skipped[other].append(name)
        elif has_splits and "/" not in name:
            skipped[NO_SPLIT].append(name)
        else:
            yield _row(tree, name, part.file, projection)
    yield from (SkippedInput.named(kind, names) for kind, names in sorted(skipped.items()))


def _values_of(name: str, has_split_folders: bool = False) -> dict[str, str]:
    """Returns the values of an image by column, from its path below the folder.

    >>> _values_of("cats/tabby/1.b.jpg")
    {'image': 'cats/tabby/1.b.jpg', 'label': 'cats', 'id': '1.b'}
    >>> _values_of("train/cats/1.jpg", has_split_folders=True)
    {'image': 'train/cats/1.jpg', 'label': 'cats', 'id': '1', 'split': 'train'}
    """
    *folders, _ = name.split("/")
    # Images directly in the folder have neither, and those directly in a split have no label.
    roles = (SPLIT, "label") if has_split_folders else ("label",)
    values = {"image": name, "id": stem_of(name), **dict(zip(roles, folders, strict=False))}
    return {column: values[column] for column in (*COLUMNS, SPLIT) if column in values}


def _row(tree: Tree, name: str, file: TableFile, projection: Projection) -> Row:
    has_splits = file.options_of(FolderOptions).has_split_folders
    uri, values = tree.path(name), _values_of(name, has_splits)
    return Row(projection.apply(values), uri, 0, is_text=True, image=Location(uri))


def _other_kind(tree: Tree, name: str) -> str | None:
    """Returns the kind of a file by its suffix or its signature; None for an image."""
    # Opening every file would be slow in an object store: only unknown suffixes need it.
    if has_image_suffix(name):
        return None
    with tree.open(name) as stream:
        head = stream.read(HEAD_BYTES)
    if is_image(head):
        return None
    kind = foreign(head)
    return kind.files if kind and kind.is_image else NO_IMAGE
