"""Defines the interface of folders to their readers, the files that these skip, and their parts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, Protocol

from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import SPLIT, SPLIT_NAMES, Part, Projection, TableFile
from recordmill.transforms.functional.images.sniffing import has_image_suffix

NO_IMAGE = "files that are not images"
NO_SPLIT = "images that no split of the source names"
OTHER_SHAPES = "shapes that are neither rectangles nor polygons"
SEVERAL_SPLITS = "images that several splits of the source name, and which are in one of them"

# Files per part: few enough for a folder to keep many workers busy, and enough to make the
# cost of a part negligible.
PART_FILES = 1000


# Folders of which each is searched for folders that are named like splits.
_MAX_FOLDERS = 8

# The largest annotation file.
_MAX_BYTES = 64 * 2**20

# Files of a folder that are searched for an image or annotation.
_MAX_SEARCHED = 10_000


class Unlisted(NamedTuple):
    """A file or folder that cannot be listed."""

    name: str  # the path below the root, with invalid UTF-8 escaped
    why: str


class Entries(NamedTuple):
    """The files and folders directly in a folder, sorted, without hidden ones."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


class Tree(Protocol):
    """The interface of a local or remote folder with all files below it."""

    @property
    def root(self) -> str:
        """The path of the folder, without a trailing slash."""

    def walk(self, folder: str = "") -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the path of each file in a folder, at any depth, and skipped inputs."""

    def entries(self, name: str = "") -> Entries:
        """Returns the files and folders directly in a folder; none if it does not exist."""

    def at(self, root: str) -> Tree:
        """Returns another folder by its full path."""

    def path(self, name: str) -> str:
        """Returns the full path of a file; its name may begin with `../`."""

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""

    def has(self, name: str) -> bool:
        """Returns whether a file or folder of this name exists below the root."""

    def is_empty(self, name: str) -> bool:
        """Returns whether a folder has no files at any depth, other than hidden ones."""


# Files and folders of operating systems, network disks and tools, in lower case. Sources: macOS,
# Windows and Linux in https://github.com/github/gitignore/tree/main/Global, the folders that
# Synology's and QNAP's disks create (Synology Drive's blacklist.filter lists its own), and NetApp's
# ~snapshot. Names that a class could have, such as Recycled, are left out. Hidden ones, such as
# .git, .dvc, .Trashes and .ipynb_checkpoints, need no entry.
_SYSTEM = frozenset(
    (
        *("__macosx", "network trash folder", "temporary items", "icon\r"),
        *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$recycle.bin"),
        *("system volume information", "lost+found", "~snapshot", "@eadir", "#recycle"),
        *("#snapshot", "@tmp", "@sharebin", "@synologydrive", "@synoresource", "@recycle"),
        *("@recently-snapshot", "@__thumb", "@transcode", "__pycache__", "node_modules"),
    )
)


def is_hidden(name: str) -> bool:
    """Returns whether a name is that of a hidden file, or of one that systems and tools create."""
    return name.startswith(".") or name.casefold() in _SYSTEM


def split_named(name: str) -> str | None:
    """Returns the first folder in the path of a file that is named like a split, or None.

    >>> split_named("images/train/a/1.jpg"), split_named("images/train.jpg")
    ('train', None)
    """
    return next((part for part in name.split("/")[:-1] if part.lower() in SPLIT_NAMES), None)


def split_folders(tree: Tree, accepts: Callable[[str], bool]) -> tuple[str, ...]:
    """Returns the folders named like splits, at the top or one level below, with accepted files."""
    top = tree.entries().folders
    few = top if len(top) <= _MAX_FOLDERS else ()
    found = [*top, *(f"{one}/{name}" for one in few for name in tree.entries(one).folders)]
    named = (name for name in found if posixpath.basename(name).lower() in SPLIT_NAMES)
    return tuple(
        sorted({posixpath.basename(name) for name in named if has_file(tree, name, accepts)})
    )


def has_file(tree: Tree, folder: str, accepts: Callable[[str], bool]) -> bool:
    """Returns whether one of the first files of a folder is accepted, or may be."""
    found = islice(tree.walk(folder), _MAX_SEARCHED)
    return any(isinstance(f, Unlisted) or (isinstance(f, str) and accepts(f)) for f in found)


def parts_of(
    tree: Tree, file: TableFile, accepts: Callable[[str], bool] = bool
) -> Iterator[Part | Reject | SkippedInput]:
    """Yields parts of the files in a folder, then rejects and skipped inputs.

    `accepts`: returns whether the source includes a file; other files are ignored.
    """
    others: list[Reject | SkippedInput] = []

    def names() -> Iterator[str]:
        for found in tree.walk():
            if isinstance(found, str):
                if accepts(found):
                    yield found
            else:
                others.append(_unlisted(tree, found) if isinstance(found, Unlisted) else found)

    # Names are listed while their parts are yielded, so `others` is complete only after the last.
    accepted = names()
    while found := tuple(islice(accepted, PART_FILES)):
        yield Part(file, names=found)
    yield from others


def annotated_parts(
    tree: Tree,
    file: TableFile,
    is_annotation: Callable[[str], bool],
    id_of: Callable[[str], str],
    unannotated: str,  # the kind of the images without an annotation
    is_list: Callable[[str], bool] = lambda name: False,
) -> Iterator[Part | Reject | SkippedInput]:
    """Yields the parts of the annotations of images, then rejects and skipped inputs."""
    # An image and its annotation have one id. Lists of images are neither read nor skipped.
    others: list[str] = []
    images: dict[str, str] = {}  # {id: file}
    annotated: set[str] = set()

    def accepts(name: str) -> bool:
        if is_annotation(name):
            annotated.add(id_of(name))
            return True
        if has_image_suffix(name):
            images[id_of(name)] = name
        elif not is_list(name):
            others.append(name)
        return False

    yield from parts_of(tree, file, accepts)
    if others:
        yield SkippedInput.named(NO_IMAGE, others)
    # Without a common id, the annotation says which image is meant.
    if images.keys() & annotated and (bare := images.keys() - annotated):
        yield SkippedInput.named(unannotated, [images[id_] for id_ in bare])


def row_of_file(
    tree: Tree,
    name: str,
    projection: Projection,
    parse: Callable[[bytes], Mapping[str, Any]],
    folder: str = "",
    split: str | None = None,
    has_folders: bool = False,
) -> Row | Reject:
    """Returns the row of an annotation file, whose column `image` is a path; or its reject.

    `folder` is that of the images. `has_folders`: whether images of several folders have the same
    names, so that the folder is a part of the key.
    """
    path = tree.path(name)
    try:
        with tree.open(name) as stream:
            values = dict(parse(stream.read(_MAX_BYTES)))
    except RecordError as error:
        return Reject("", "", path, error.reason, error.detail)
    except OSError as error:
        return Reject("", "", path, Reason.READ_ERROR, str(error.strerror or error))
    below = posixpath.join(folder, values["image"])
    if has_folders:
        values["image"] = posixpath.normpath(below)
    # With an image root, paths are resolved, and confined to it, as those in tables are.
    image = Location(tree.path(below)) if projection.image_root is None else None
    values = {"id": stem_of(name), SPLIT: split, **values}
    return Row(projection.apply(values), path, 0, image=image)


def stem_of(name: str) -> str:
    """Returns the name of a file without its folder and last suffix."""
    return posixpath.splitext(posixpath.basename(name))[0]


def _unlisted(tree: Tree, found: Unlisted) -> Reject:
    source = tree.path(found.name)
    return Reject("", "", source, Reason.READ_ERROR, found.why)
