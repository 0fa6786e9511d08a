"""Defines the interface of folders to their readers, the files that these skip, and their parts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Literal, NamedTuple, Protocol, TypeAlias

from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import SPLIT_NAMES, Part, TableFile

NO_IMAGE = "files that are not images"
NO_SPLIT = "images that no split of the source names"
UNNAMED = "images in the folder that no annotation names"
SEVERAL_SPLITS = "images that several splits of the source name, written to one of them"
SHARED_LABELS = "images with the label file of another image, whose objects both have"

# Files per part: few enough for a folder to keep many workers busy, and enough to make the
# cost of a part negligible.
PART_FILES = 1000


# Levels that are searched for folders that are named like splits: ImageNet has them in the fourth
# one. Folders of a level of which each is searched.
_SPLIT_LEVELS, _MAX_FOLDERS = 4, 8

# Files that are searched for an annotation: a folder of a million images is not listed twice.
_MAX_FILES = 5_000

# Files of a folder that are searched for an image or annotation, and for the only one.
_MAX_SEARCHED, _MAX_LISTED = 10_000, 100_000


# Bytes of a file that are read to recognize its format: an annotation may begin with comments.
HEAD_BYTES = 2**16


# What the names of files with a split may contain, as instances_minival.json does.
_SPLIT_WORDS = re.compile("train|val|test|dev")

# Paths of images that are no addresses; those above their folder, only of Windows.
_PATH = re.compile(r"([A-Za-z]:[/\\]|(\.\.\\)+)?[^.:][^:]*")


# Whether a file is read by itself, or with another, as images of annotations are, or not at all.
Use: TypeAlias = Literal["read", "with another", "skipped"]


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
_SYSTEM = frozenset((
    "__macosx", "network trash folder", "temporary items", "icon\r",
    "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$recycle.bin",
    "system volume information", "lost+found", "~snapshot", "@eadir", "#recycle",
    "#snapshot", "@tmp", "@sharebin", "@synologydrive", "@synoresource", "@recycle",
    "@recently-snapshot", "@__thumb", "@transcode", "__pycache__", "node_modules",
))  # fmt: skip


def first_files(tree: Tree) -> Iterator[str]:
    """Returns the files by which the format of a folder is recognized."""
    return (name for name in islice(tree.walk(), _MAX_FILES) if isinstance(name, str))


def head_of(tree: Tree, name: str) -> bytes:
    """Returns the first bytes of a file, by which its format is recognized."""
    with tree.open(name) as stream:
        return stream.read(HEAD_BYTES)


def first_lines(tree: Tree, name: str) -> list[str]:
    """Returns the complete lines at the beginning of a text file, without outer whitespace."""
    data = head_of(tree, name)
    whole = data.rpartition(b"\n")[0] if len(data) == HEAD_BYTES else data
    lines = (line.strip() for line in whole.decode("utf-8-sig", "replace").splitlines())
    return list(filter(None, lines))


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
    """Returns the folders named like splits, at one of the first levels, with accepted files."""
    found, level = list[str](), [""]
    for _ in range(_SPLIT_LEVELS):
        level = [posixpath.join(one, name) for one in level for name in tree.entries(one).folders]
        found += level
        if len(level) > _MAX_FOLDERS:
            break
    named = (name for name in found if posixpath.basename(name).lower() in SPLIT_NAMES)
    return tuple(
        sorted({posixpath.basename(name) for name in named if has_file(tree, name, accepts)})
    )


def other_splits(root: str, splits: Mapping[str, str]) -> Iterator[Finding]:
    """Yields a warning if files without a split have one in their name, as `minival` has."""
    words = {name: frozenset(_SPLIT_WORDS.findall(stem_of(name).lower())) for name in splits}
    known = {word for split in splits.values() for word in _SPLIT_WORDS.findall(split.lower())}
    named = [n for n, split in splits.items() if not split and not words[n] <= known]
    if named and len({words[name] for name in named}) + bool(known) > 1:
        text = f"{root}: {some(named)}: not splits, because their names have other words"
        hint = "if they are splits, rename them, as to train.json and val.json"
        yield finding("warning", "splits_as_files", text, hint, examples=named)


def has_file(tree: Tree, folder: str, accepts: Callable[[str], bool]) -> bool:
    """Returns whether one of the first files of a folder is accepted, or may be."""
    found = islice(tree.walk(folder), _MAX_SEARCHED)
    return any(isinstance(f, Unlisted) or (isinstance(f, str) and accepts(f)) for f in found)


def folder_with(tree: Tree, image: str, split: str = "") -> tuple[str, str, bool] | None:
    """Returns the folder with an image of a split, and the prefix of its path that is left out.

    Folders of other splits do not count if one is named like the split; the last value is whether
    several have the image. None if several files count, or may exist, or the prefix is a folder.
    """
    own = _splits_in(split)
    listed = islice(tree.walk(), _MAX_LISTED) if _PATH.fullmatch(image) else ()
    paths = [f"/{path}" for path in listed if isinstance(path, str)]
    for match in re.finditer(r"^|[/\\]", image):
        prefix, end = image[: match.end()], image[match.end() :].replace("\\", "/")
        if prefix and any(f"/{prefix}" in path for path in paths):
            return None
        if found := [path[1 : -len(end)] for path in paths if path.endswith(f"/{end}")]:
            is_named = own and any(_splits_in(posixpath.dirname(path)) == own for path in paths)
            fitting = [f for f in found if not is_named or _splits_in(f) in (own, frozenset())]
            is_only = len(fitting) == 1 and len(paths) < _MAX_LISTED
            return (fitting[0].rstrip("/"), prefix, len(found) > 1) if is_only else None
    return None


def _splits_in(path: str) -> frozenset[str]:
    # "val", "valid" and "validation" begin alike.
    words = re.findall("[a-z]+", path.lower())
    return frozenset(word[:3] for word in words if word in SPLIT_NAMES)


def parts_of(
    tree: Tree, file: TableFile, use_of: Callable[[str], Use] = lambda name: "read"
) -> Iterator[Part | Reject | SkippedInput]:
    """Yields parts of the files in a folder, then rejects and skipped inputs."""
    others: list[Reject | SkippedInput] = []
    unread = list[str]()

    def names() -> Iterator[str]:
        for found in tree.walk():
            if isinstance(found, Unlisted):
                others.append(Reject("", "", tree.path(found.name), Reason.READ_ERROR, found.why))
            elif not isinstance(found, str):
                others.append(found)
            elif (use := use_of(found)) == "read":
                yield found
            elif use == "skipped":
                unread.append(found)

    # Names are listed while their parts are yielded, so `others` is complete only after the last.
    accepted = names()
    while found := tuple(islice(accepted, PART_FILES)):
        yield Part(file, names=found)
    yield from others
    if unread:
        yield SkippedInput.named(NO_IMAGE, unread)


def stem_of(name: str) -> str:
    """Returns the name of a file without its folder and last suffix."""
    return posixpath.splitext(posixpath.basename(name))[0]
