"""Lists folders with all files below them, on this machine or in an object store.

Links are followed, and hidden files are skipped.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import BinaryIO

from pathspec import GitIgnoreSpec

from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import join
from recordmill.schemas.records import SkippedInput
from recordmill.schemas.tables import NO_EXCLUSION, Exclusion
from recordmill.transforms.functional.sources.tree import Entries, Unlisted, is_hidden
from recordmill.transforms.storage.files import entries, exists, is_local, names_below, open_binary
from recordmill.transforms.storage.local_files import is_special

HIDDEN = "hidden files and folders, and those of systems and tools"
LOOPS = "links to a folder that they are in"
SPECIAL = "FIFOs, sockets and devices"

# The maximum number of paths, through links, by which one folder is read.
MAX_PATHS = 64

_TOO_MANY_PATHS = f"links make over {MAX_PATHS} paths to this folder. Remove some of them."
_UPWARDS = re.compile(r"/[^/]+/\.\./")

# (device, inode).
_FolderId = tuple[int, int]


@dataclass(frozen=True)
class FileTree:
    """A folder; implements `recordmill.transforms.functional.sources.tree.Tree`."""

    root: str  # the path of the folder, without a trailing slash
    exclusion: Exclusion = NO_EXCLUSION
    # Each format asks for the same folders when it recognizes one; in stores, that is a request.
    _listed: dict[str, Entries] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[FileTree], tuple[str, Exclusion]]:
        return FileTree, (self.root, self.exclusion)  # workers get no listings

    def walk(self, folder: str = "") -> Iterator[str | Unlisted | SkippedInput]:
        """Yields the path below the root of every file, and skipped inputs for hidden ones."""
        walk = _walk_here if is_local(self.root) else _walk_store
        return walk(self, folder)

    def entries(self, name: str = "") -> Entries:
        """Returns the files and folders directly in a folder; none if it does not exist."""
        if name in self._listed:
            return self._listed[name]
        folders, files = entries(self.path(name))
        above = f"{name}/" if name else ""
        shown = (
            sorted(
                n for n in names if not is_hidden(n) and not self.excluded_by(f"{above}{n}{slash}")
            )
            for names, slash in ((folders, "/"), (files, ""))
        )
        return self._listed.setdefault(name, Entries(*map(tuple, shown)))

    def at(self, root: str) -> FileTree:
        """Returns another folder by its full path."""
        return FileTree(root, self.exclusion)

    def path(self, name: str) -> str:
        """Returns the full path of a file; its name may begin with `../`."""
        return _UPWARDS.sub("/", join(self.root, name) if name else self.root)

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""
        return open_binary(self.path(name))

    def has(self, name: str) -> bool:
        """Returns whether a file or folder of this name exists below the root."""
        return not self.excluded_by(name) and exists(self.path(name))

    def is_empty(self, name: str) -> bool:
        """Returns whether a folder has no files, other than hidden ones; stores have no such."""
        return is_local(self.root) and all(isinstance(f, SkippedInput) for f in self.walk(name))

    def excluded_by(self, name: str) -> str:
        """Returns the pattern that leaves out a file, or a folder with a trailing slash; or ""."""
        return pattern_of(self.exclusion, self.path(name)) if self.exclusion.patterns else ""


def excluded(pattern: str, name: str) -> SkippedInput:
    """Returns a file or folder that a pattern leaves out."""
    return SkippedInput.named(f"left out by --exclude {pattern}", [name])


def pattern_of(exclusion: Exclusion, path: str) -> str:
    """Returns the pattern that leaves out a file, or a folder with a trailing slash; "" if none."""
    root = f"{exclusion.root}/"
    if not path.startswith(root) or path == root:
        return ""
    found = _spec_of(exclusion.patterns).check_file(path[len(root) :])
    return exclusion.patterns[found.index] if found.include and found.index is not None else ""


@cache
def _spec_of(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    """Returns the compiled patterns; raises UsageError for those that are invalid or empty."""
    for pattern in patterns:
        try:
            found = GitIgnoreSpec.from_lines([pattern]).patterns
        except ValueError:
            found = []
        if not found or found[0].include is None:  # empty, or a comment
            what = f"--exclude: {pattern!r} is not a pattern"
            raise UsageError(f"{what}; expected one as in .gitignore, such as *.tmp")
    return GitIgnoreSpec.from_lines(patterns)


def unused_patterns(tree: FileTree) -> list[str]:
    """Returns the patterns that leave nothing out of a folder, walked until there are none."""
    _spec_of(tree.exclusion.patterns)
    patterns = (p for p in tree.exclusion.patterns if not p.startswith("!"))
    unused = {excluded(pattern, "").kind: pattern for pattern in patterns}
    for found in tree.walk() if unused else ():
        if isinstance(found, SkippedInput):
            unused.pop(found.kind, None)
        if not unused:
            break
    return list(unused.values())


def _walk_here(tree: FileTree, top: str) -> Iterator[str | Unlisted | SkippedInput]:
    """Yields the files below a folder of a local root. Links are followed, but not in a cycle.

    A folder is read once for each link to it, up to `MAX_PATHS`: 16 levels with two links each
    would give 65,536 paths to one file.
    """
    # A stack instead of recursion: (folder below the root, ids of the folders above it).
    root = tree.root
    waiting: list[tuple[str, tuple[_FolderId, ...]]] = [(top, ())]
    paths = Counter[_FolderId]()
    while waiting:
        folder, above = waiting.pop()
        path = join(root, folder) if folder else root
        try:
            state = os.stat(path)
            here = (state.st_dev, state.st_ino)
            if here in above:  # a link to one of its own parents
                yield SkippedInput.named(LOOPS, [_readable(folder)])
                continue
            # Links to siblings are legal, but their number of paths can grow exponentially.
            paths[here] += 1
            if paths[here] > MAX_PATHS:
                yield Unlisted(_readable(folder), _TOO_MANY_PATHS)
                continue
            below: list[str] = []
            with os.scandir(path) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    found = _found(entry, name, tree)
                    if found is not None:
                        yield found
                    else:
                        below.append(name)
            # Sorted, so that every run reads the same paths of a folder that has too many.
            waiting.extend((name, (*above, here)) for name in sorted(below, reverse=True))
        except OSError as error:
            why = f"the folder cannot be listed: {error.strerror or error}"
            yield Unlisted(_readable(folder), why)


def _found(
    entry: os.DirEntry[str], name: str, tree: FileTree
) -> str | Unlisted | SkippedInput | None:
    """Returns the name of a file or the reason to skip an entry; None for a folder."""
    if is_hidden(entry.name):
        return SkippedInput.named(HIDDEN, [_readable(name)])
    if _readable(entry.name) != entry.name:
        return Unlisted(_readable(name), "the name is not valid UTF-8. Rename it.")
    has_patterns = bool(tree.exclusion.patterns)
    if has_patterns and (pattern := tree.excluded_by(name + "/" * entry.is_dir())):
        return excluded(pattern, name)
    if entry.is_file():
        return name
    if entry.is_dir():
        return None
    # A broken link is neither: it is rejected when it is read, with the name of its row.
    return SkippedInput.named(SPECIAL, [name]) if is_special(entry.path) else name


def _walk_store(tree: FileTree, top: str) -> Iterator[str | SkippedInput]:
    above = f"{top}/" if top else ""
    for found in names_below(f"{tree.root}/{above}"):
        name = above + found
        if any(is_hidden(part) for part in name.split("/")):
            yield SkippedInput.named(HIDDEN, [name])
        elif pattern := tree.excluded_by(name):
            yield excluded(pattern, name)
        elif name != above and not name.endswith(
            "/"
        ):  # some tools create an empty object per folder
            yield name


def _readable(name: str) -> str:
    """Returns a name as printable text, with invalid UTF-8 escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
