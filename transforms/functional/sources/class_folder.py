"""Reads folders of images, in which the top-level folder of an image, at any depth, is its class.

If the top-level folders are splits, as in train/cat/1.jpg, the folders in them are the classes; so
are those in a folder that is named like one of all images, as in images/cat/1.jpg.
"""

from __future__ import annotations

import posixpath
import re
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

_OTHER_LEVEL = "other_level"  # the kind of a finding

# Names of folders with all images, not with those of a class.
_ALL_IMAGES = re.compile(r"images?|imgs?|photos?|pics?|jpe?gs?|pngs?|data|datasets?|files|all|raw")
_IMAGES = re.compile(r"images?|imgs?|jpegimages", re.IGNORECASE)
_TABLE = (
    "For labels in a table, use --input TABLE --image_root DIR; write that table first if they are "
    "in file names. "
)
_WORD = re.compile(r"[a-z]+")
# Files with the labels of images, such as list_attr_celeba.txt.
_LISTS = re.compile(
    r"(list_|_list|attr|anno|bbox|identit|split|_labels?).*\.(txt|json|mat|xml)$", re.IGNORECASE
)

# Class folders that are searched for the same folders in them: one request each in a store.
_MAX_NESTED = 100


@dataclass(frozen=True)
class FolderOptions:
    """What is known of a folder of images before it is read."""

    has_split_folders: bool = False  # whether the folders above the class folders are splits
    depth: int = 0  # the number of folders above the class folders


def sources_in(tree: Tree, level: int | None = None) -> Sources:
    """Returns a folder as a source whose folders are the classes, with a warning if in doubt.

    `level` is that of the class folders, from 1, if it is stated. Raises UsageError if no folder of
    this level has images.
    """
    if level is not None:
        return _at_level(tree, level)
    above = _containers(tree)
    splits = _split_folders(tree, above)
    depth = len(above.split("/")) * bool(above) + bool(splits)
    options = FolderOptions(bool(splits), depth)
    doubt = _doubt(tree, options)
    findings = (Finding(kind=_OTHER_LEVEL, severity="warning", text=doubt),) * bool(doubt)
    file = TableFile(tree.root, "folder", options=options)
    within = f"{above}/" if above else ""
    if splits:
        text = f"class folders within split folders{f' in {within}' if within else ''}"
        return Sources((file,), text, findings=findings)
    names = tree.entries(above).folders
    named = [name for name in names if name.lower() in SPLIT_NAMES]
    if not named:
        text = f"class folders in {within}" if within else ""
        return Sources((file,), text, findings=(*findings, *_split_like(tree, names, depth)))
    if len(named) == 1:
        findings = (*findings, *_split_like(tree, names, depth))
    others = [name for name in names if name not in named]
    what, they = "would be classes, not splits", "they contain"
    if len(named) == 1:
        what, they = "a class, not a split", "it contains"
    why = f"{others[0]!r} is not the name of a split" if others else f"{they} no folders"
    text = f"{', '.join(named)}: {what}, because {why}"
    below = tree.entries(posixpath.join(above, named[0])).folders
    if others and len(named) < 2 and len(below) < 2:
        return Sources((file,), f"class folders; {text}", findings=findings)
    doubtful = Finding(
        kind="splits_as_classes",
        severity="warning",
        text=f"{tree.root}: {text}",
        hint=f"{_TABLE}To make the folders the classes, add --class_level {depth + 1}; with "
        "--split_column label and a schema without classes, they are splits"
        if len(named) > 1 or not others
        else f"If it is one, with the classes {some(below)}, leave out the other folders with "
        f"--exclude {shlex.quote(f'{others[0]}/')}. To make it a class, add --class_level "
        f"{depth + 1}",
        examples=tuple(named[:EXAMPLES]),
    )
    return Sources((file,), "class folders", findings=(*findings, doubtful))


def _split_like(tree: Tree, names: Sequence[str], depth: int) -> Iterator[Finding]:
    """Yields a warning if class folders are named like splits, such as WIDER_train, WIDER_val."""
    by_rest = defaultdict[str, list[str]](list)
    for name in names:
        words = _WORD.findall(name.lower())
        if not {*words}.isdisjoint(SPLIT_NAMES):
            by_rest[" ".join(w for w in words if w not in SPLIT_NAMES)].append(name)
    for found in [several for several in by_rest.values() if len(several) > 1][:1]:
        yield Finding(
            kind="splits_as_classes",
            severity="warning",
            text=f"{tree.root}: {some(found)}: would be classes, and are named like splits",
            hint=f"{_TABLE}Name them train, test, … to make them splits of the folders in them. To "
            f"make them the classes, add --class_level {depth + 1}",
            examples=tuple(found[:EXAMPLES]),
        )


def _at_level(tree: Tree, level: int) -> Sources:
    """Returns class folders at a stated level, and the splits in the level above."""
    above = _folders_at(tree, level - 1)
    if not any(has_file(tree, name, has_image_suffix) for name in _folders_at(tree, level)):
        raise UsageError(
            f"{tree.root}: has no images in folders of level {level}. Set --class_level to the "
            "level of the class folders: 1 is that of the folders directly in the input."
        )
    has_splits = bool(_splits_among(tree, above))
    file = TableFile(tree.root, "folder", options=FolderOptions(has_splits, level - 1))
    text = f"class folders of level {level}{' within split folders' * has_splits}"
    return Sources((file,), text, findings=() if has_splits else tuple(_no_splits(tree, above)))


def _no_splits(tree: Tree, folders: Sequence[str]) -> Iterator[Finding]:
    """Yields a warning if folders named like splits are none, because others have images."""
    named = sorted({posixpath.basename(name) for name in filter(_is_split, folders)})
    if len(named) < 2:
        return
    other = _unsplit(tree, folders)
    yield Finding(
        kind="splits_as_folders",
        severity="warning",
        text=f"{tree.root}: {', '.join(named)}: not splits, because {other!r} has images and is "
        "not the name of a split",
        hint="If they are splits, leave out the other folders, as with --exclude "
        f"{shlex.quote(f'{other}/')}",
        examples=tuple(named[:EXAMPLES]),
    )


def has_all_images(folder: str) -> bool:
    """Returns whether a folder is named like those with all images, such as train_images."""
    words = _WORD.findall(folder.lower())
    are_known = (word in SPLIT_NAMES or _ALL_IMAGES.fullmatch(word) for word in words)
    return bool(words) and all(are_known)


def _containers(tree: Tree) -> str:
    """Returns the folder in which the class folders are, below folders that contain all images.

    It is data/images of data/images/cat/1.jpg and data/images/dog/2.jpg, and "" of most datasets.
    """
    above = ""
    while True:
        folders, files = tree.entries(above)
        named = [
            name for name in folders if has_all_images(name) and name.lower() not in SPLIT_NAMES
        ]
        if len(named) != 1 or any(map(has_image_suffix, files)):
            return above
        inner, others = posixpath.join(above, named[0]), [n for n in folders if n not in named]
        if any(has_file(tree, posixpath.join(above, n), has_image_suffix) for n in others):
            return above
        below = tree.entries(inner)
        if not below.folders or any(map(has_image_suffix, below.files)):
            return above
        above = inner


def _doubt(tree: Tree, options: FolderOptions) -> str:
    """Returns why the class folders may be at another level, and what to do; "" if they are not."""
    level = options.depth + 1
    if found := _only_class(tree, options):
        label, deeper, below = found
        what = f"all images are in {label}/, which would be the only class"
    elif deeper := _images_as_class(tree, options):
        below, what = (), f"{deeper}/ would be a class"
    elif repeated := _repeated_folders(tree, options):
        deeper, below = repeated
        what = "the folders of different classes contain the same folders"
    elif nested := _nested_folders(tree, options):
        deeper, below = nested
        what = "all images are in folders of the class folders"
    else:
        return ""
    if not below:
        return (
            f"{tree.root}: {what}; expected a folder per class. If labels are in a table, use "
            f"--input TABLE --image_root {shlex.quote(tree.path(deeper))}. To make it a class, add "
            f"--class_level {level}."
        )
    return (
        f"{tree.root}: {what}: {some(below)}. If these are the classes, add --class_level "
        f"{deeper.count('/') + 2}; if the folders above are, add --class_level {level}. Folders "
        "named train, test, … above the classes are splits."
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
            options = file.options_of(FolderOptions)
            tops = _folders_at(tree, options.depth) if options.has_split_folders else ()
            splits = tuple(dict.fromkeys(filter(_is_split, map(posixpath.basename, tops))))
            labels = DeclaredClasses((), are_names=True, unused=_empty_classes(tree, options))
            label = COLUMNS[1:2] if _class_folders(tree, options) else ()
            columns = (COLUMNS[0], *label, *COLUMNS[2:], *(SPLIT,) * bool(splits))
            return Probe(columns, has_rows=True, classes={"label": labels}, splits=splits)
    del others[NO_IMAGE]
    seen = ", ".join(f"{number:,} {kind}" for kind, number in sorted(others.items()))
    remedies = " ".join(kind.remedy for kind in FOREIGN.values() if kind.files in others)
    raise UsageError(
        f"{file.path}: the folder contains no image{f' but {seen}' if seen else ''}; expected a "
        f"table, or images in folders named after their classes{f'. {remedies}' if seen else ''}"
    )


def _is_split(folder: str) -> bool:
    return posixpath.basename(folder).lower() in SPLIT_NAMES


def _split_folders(tree: Tree, above: str) -> tuple[str, ...]:
    """Returns the folders in a folder if they are splits with classes in them; () otherwise."""
    folders = [posixpath.join(above, name) for name in tree.entries(above).folders]
    if not any(tree.entries(name).folders for name in filter(_is_split, folders)):
        return ()
    return _splits_among(tree, folders)


def _splits_among(tree: Tree, folders: Sequence[str]) -> tuple[str, ...]:
    """Returns the folders that are named like splits; () if one of the others has images."""
    names = tuple(filter(_is_split, folders))
    return () if names and _unsplit(tree, folders) else names


def _unsplit(tree: Tree, folders: Sequence[str]) -> str:
    """Returns the first folder with images that is not named like a split; "" if there is none."""
    others = (name for name in folders if not _is_split(name))
    return next((name for name in others if has_file(tree, name, has_image_suffix)), "")


def _only_class(tree: Tree, options: FolderOptions) -> tuple[str, str, tuple[str, ...]] | None:
    """Returns the only class, a folder in it with several folders, and their names; or None.

    The names are () for a class that is named like a folder of all images, and has no folders.
    """
    found = list[str]()
    for name in _with_images(tree, options):
        if found and posixpath.basename(name) != posixpath.basename(found[0]):
            return None
        found.append(name)
    label, below = posixpath.basename(found[0]) if found else "", _folders_in(tree, found)
    if found and not below:
        has_lists = options.depth == 0 and any(map(_LISTS.search, tree.entries().files))
        is_all = has_lists or (has_all_images(label) and not _is_split(label))
        return (label, found[0], ()) if is_all else None
    while len(below) == 1:  # data/images/cat, data/images/dog
        found = [posixpath.join(name, below[0]) for name in found]
        below = _folders_in(tree, found)
    return (label, found[0], below) if below else None


def _images_as_class(tree: Tree, options: FolderOptions) -> str:
    """Returns a folder of all images in a split, which would be its only class; "" if none is.

    So is a folder `images` beside others, such as one of masks.
    """
    named = (n for n in _class_folders(tree, options) if _IMAGES.fullmatch(posixpath.basename(n)))
    if found := next((n for n in named if has_file(tree, n, has_image_suffix)), ""):
        return found
    by_split = dict[str, list[str]]()
    for name in _class_folders(tree, options) if options.has_split_folders else ():
        by_split.setdefault(posixpath.dirname(name), []).append(name)
    only = (names[0] for names in by_split.values() if len(names) == 1)
    return next((n for n in only if has_all_images(posixpath.basename(n))), "")


def _repeated_folders(tree: Tree, options: FolderOptions) -> tuple[str, tuple[str, ...]] | None:
    """Returns a folder in a class, and the names of folders in it that the others have; or None.

    Returns None if images are beside these folders, which ends the search at the first class of
    most datasets.
    """
    first, common, labels = "", set[str](), set[str]()
    for name in islice(_with_images(tree, options), _MAX_NESTED):
        folders, files = tree.entries(inner := _innermost(tree, name))
        common = common & {*folders} if first else {*folders}
        if len(common) < 2 or any(map(has_image_suffix, files)):
            return None
        first = first or inner
        labels.add(posixpath.basename(name))
    return (first, tuple(sorted(common))) if len(labels) > 1 else None


def _nested_folders(tree: Tree, options: FolderOptions) -> tuple[str, tuple[str, ...]] | None:
    """Returns a class folder, and the folders in all of them, if no image is beside these; or None.

    They are classes of their own, as in a/abbey, a/attic, b/bar, or days of a month.
    """
    found = list[str]()
    for name in islice(_with_images(tree, options), _MAX_NESTED):
        folders, files = tree.entries(name)
        if len(folders) < 2 or any(map(has_image_suffix, files)):
            return None
        found.append(name)
    return (found[0], _folders_in(tree, found)) if len(found) > 1 else None


def _with_images(tree: Tree, options: FolderOptions) -> Iterator[str]:
    """Yields the class folders with images."""
    classes = _class_folders(tree, options)
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


def names_of(tree: Tree, file: TableFile) -> set[str]:
    """Returns the names of the class folders."""
    return {*map(posixpath.basename, _class_folders(tree, file.options_of(FolderOptions)))}


def _folders_at(tree: Tree, level: int) -> list[str]:
    """Returns the folders at a level below the root, which is at level 0."""
    found = [""]
    for _ in range(level):
        found = [posixpath.join(top, name) for top in found for name in tree.entries(top).folders]
    return found


def _class_folders(tree: Tree, options: FolderOptions) -> list[str]:
    tops = _folders_at(tree, options.depth)
    tops = list(filter(_is_split, tops)) if options.has_split_folders else tops
    return [posixpath.join(top, name) for top in tops for name in tree.entries(top).folders]


def _empty_classes(tree: Tree, options: FolderOptions) -> tuple[str, ...]:
    """Returns the names of class folders without files, sorted."""
    empty = filter(tree.is_empty, _class_folders(tree, options))
    return tuple(sorted({posixpath.basename(name) for name in empty}))


def read(tree: Tree, part: Part, projection: Projection) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image, and the skipped files."""
    skipped = defaultdict[str, list[str]](list)
    options = part.file.options_of(FolderOptions)
    has_splits = options.has_split_folders and projection.has(SPLIT)
    for name in part.names:
        try:
            other = _other_kind(tree, name)
        except OSError as error:
            uri = tree.path(name)
            yield Reject("", uri, uri, Reason.READ_ERROR, str(error.strerror or error))
            continue
        if other is not None:
            skipped[other].append(name)
        elif has_splits and name.count("/") < options.depth:
            skipped[NO_SPLIT].append(name)
        else:
            yield _row(tree, name, part.file, projection)
    yield from (SkippedInput.named(kind, names) for kind, names in sorted(skipped.items()))


def _values_of(name: str, options: FolderOptions) -> dict[str, str]:
    """Returns the values of an image by column, from its path below the folder.

    >>> _values_of("cats/tabby/1.b.jpg", FolderOptions())
    {'image': 'cats/tabby/1.b.jpg', 'label': 'cats', 'id': '1.b'}
    >>> _values_of("train/cats/1.jpg", FolderOptions(has_split_folders=True, depth=1))
    {'image': 'train/cats/1.jpg', 'label': 'cats', 'id': '1', 'split': 'train'}
    """
    *folders, _ = name.split("/")
    # Images above the class folders have no label, and those above the splits have neither.
    found = {"label": folders[options.depth : options.depth + 1]}
    if options.has_split_folders:
        found[SPLIT] = folders[options.depth - 1 : options.depth]
    values = {"image": name, "id": stem_of(name), **{c: f[0] for c, f in found.items() if f}}
    return {column: values[column] for column in (*COLUMNS, SPLIT) if column in values}


def _row(tree: Tree, name: str, file: TableFile, projection: Projection) -> Row:
    uri, values = tree.path(name), _values_of(name, file.options_of(FolderOptions))
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
