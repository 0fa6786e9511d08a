"""Reads folders of images, in which the top-level folder of an image, at any depth, is its class.

If the top-level folders are splits, as in train/cat/1.jpg, the folders in them are the classes; so
are those in a folder of all images, as in images/cat/1.jpg. Or splits are in those of the classes.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse, islice

from recordmill.schemas import tables
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, Severity, counted, finding, has, some
from recordmill.schemas.layout import is_url
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.sources.tree import (
    NO_IMAGE,
    NO_SPLIT,
    Tree,
    has_file,
    stem_of,
)

COLUMNS = ("image", "label", "id")

# Names of folders with all images, not with those of a class.
_ALL_IMAGES = re.compile(r"images?|imgs?|photos?|pics?|jpe?gs?|pngs?|data|datasets?|files|all|raw")
_IMAGES = re.compile(r"images?|imgs?|jpegimages", re.IGNORECASE)
_TABLE = (
    "For labels in a table, use --input TABLE --image_root DIR; write that table first if they are "
    "in file names. "
)
# Words in the names of folders that are parts of a dataset, of counted classes, and of pairs.
_PARTS = frozenset(("part", "parts", "fold", "batch", "chunk", "shard", "subset", "images", "img"))
_COUNTED = frozenset(("class", "label", "category", "id", "person", "subject"))
_PAIRED = re.compile(
    r"(?i)(^|[\W_])(rgb|depth|inputs?|targets?|low|high|[lh]r|gt|left|right|noisy|clean|hazy|blur"
    r"|sharp|ir|visible|thermal)($|[\W_])"
)
_MAX_PAIRED, _MIN_PAIRED = 4, 10  # folders, and images of each whose names are a sign
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of trainA, too
# Files with the labels of images, such as list_attr_celeba.txt.
_LISTS = re.compile(
    r"(list_|_list|attr|anno|bbox|identit|split|_labels?).*\.(txt|json|mat|xml)$", re.IGNORECASE
)

# Folders of a level that are searched for others in them, one request each in a store, and levels.
_MAX_NESTED, _MAX_LEVELS = 100, 8
_SHOWN = 3


@dataclass(frozen=True)
class FolderOptions:
    """What is known of a folder of images before it is read."""

    depth: int = 0  # the number of folders above the class folders
    split_level: int = 0  # the level of split folders, from 1: directly above or in them; 0: none

    @property
    def is_below_splits(self) -> bool:
        """Whether the folders directly above the class folders are splits."""
        return 0 < self.split_level <= self.depth


def sources_in(tree: Tree, level: int | None = None) -> tables.Sources:
    """Returns a folder as a source whose folders are the classes, with a warning if in doubt.

    `level` is that of the class folders, from 1. Raises UsageError if no folder of it has images.
    """
    if level is not None:
        return _at_level(tree, level)
    above = _containers(tree)
    folders = _folders_in(tree, [above])
    splits = _splits_among(tree, folders)
    # Splits without classes would be classes, as in train/1.jpg, test/2.jpg.
    splits = splits if _folders_in(tree, splits) else ()
    depth = len(above.split("/")) * bool(above) + bool(splits)
    options = FolderOptions(depth, depth * bool(splits))
    doubts = [None if splits else _doubt_of_splits(tree, folders), _doubt_of_level(tree, options)]
    if not splits and _has_splits_in_classes(tree, options):
        options = FolderOptions(depth, depth + 2)
        doubts = [_doubt_of_level(tree, options)]  # images/train beside masks/train
    elif not (splits or any(doubts)):
        doubts = [*_no_splits(tree, folders, f" --class_level {depth + 1}")]
    doubts.append(_doubt_of_names(tree, options))
    is_plain = not (above or options.split_level)
    text = "" if is_plain else _text_of(options) + (f" in {above}/" if above else "")
    file = tables.TableFile(tree.root, "folder", options=options)
    return tables.Sources((file,), text, findings=tuple(found for found in doubts if found))


def _text_of(options: FolderOptions, level: str = "") -> str:
    if options.is_below_splits:
        return f"class folders{level} within split folders"
    return f"class folders{level}{' with split folders in them' if options.split_level else ''}"


def _doubt_of_level(tree: Tree, options: FolderOptions) -> Finding | None:
    """Returns a warning if the classes may be at another level, with the options for each."""
    classes = _with_images(tree, _class_folders(tree, options))
    first, to_make = next(classes, ""), f"add --class_level {options.depth + 1}"
    label = posixpath.basename(first)
    label = "" if any(posixpath.basename(name) != label for name in classes) else label
    only = f"all images are in {label}/, which would be the only class"
    what = only if label else "all images are in folders of the class folders"
    if below := _classes_below(tree, options, is_only=bool(label)):
        deeper = _classes_below(tree, FolderOptions(below[0].count("/")), is_only=False)
        those = "" if all(map(_is_split, deeper)) else "if those in them are, add --class_level "
        those += f"{deeper[0].count('/') + 1}; " if those else ""
        text = (
            f"{what}: {some(sorted(_names(below)))}. If these are the classes, "
            f"add --class_level {below[0].count('/') + 1}; {those}if the folders above are, "
            f"{to_make}. Folders named train, test, … directly above the classes, or in them, are "
            "splits"
        )
    else:
        has_lists = options.depth == 0 and any(map(_LISTS.search, tree.entries().files))
        is_all = has_lists or (has_all_images(label) and not _is_split(label))
        folder = first if label and is_all else _images_as_class(tree, options)
        if not folder and label:
            text = f"{tree.root}: all images are in {label}/, the only class"
            hint = "labels in a table are read with --input TABLE --image_root DIR"
            return finding("note", "one_class", text, hint)
        if not folder:
            return None
        text = (
            f"{what if label and is_all else f'{folder}/ would be a class'}; expected a folder per "
            "class. If labels are in a table, use --input TABLE --image_root "
            f"{shlex.quote(tree.path(folder))}. To make it a class, {to_make}"
        )
    return finding("warning", "other_level", f"{tree.root}: {text}.")


def _doubt_of_names(tree: Tree, options: FolderOptions) -> Finding | None:
    """Returns a finding if class folders are parts of a dataset, pairs, or a copy of others."""
    folders = [*islice(_with_images(tree, _class_folders(tree, options)), _MAX_NESTED)]
    names = sorted(_names(folders))
    rest = {re.sub(r"\d+", "", name) for name in names}
    words = {word for name in rest for word in _WORD.findall(name.lower()) if len(word) > 1}
    inner = _names(_folders_in(tree, folders))
    copy = next((n for n in folders if len({*tree.entries(n).folders} & {*names}) > 1), "")
    # Those of ImageNet, such as n01440764, are classes.
    is_known = rest == {"n"} or (words and words <= _COUNTED)
    are_numbered = len(names) > len(rest) == 1 and not is_known
    severity: Severity = "warning"
    differ = "names that differ only in their numbers, as parts and sequences have"
    what, remedy = "", "merge their images into one folder per class, or list them in a table"
    if copy:
        names = [posixpath.basename(copy)]
        what = "the names of other classes in it"
        remedy = f"leave it out with --exclude {shlex.quote(copy)}/"
    elif are_numbered and (words & _PARTS or (len(inner) == 1 and has_all_images(*inner))):
        what = differ
    elif 1 < len(names) <= _MAX_PAIRED:
        stems = [frozenset(map(stem_of, tree.entries(name).files)) for name in folders]
        pairs = {*zip(map(posixpath.dirname, folders), stems, strict=True)}
        # In each split, all folders have the same ones.
        is_same = len(pairs) == len({above for above, _ in pairs}) == len(folders) / len(names)
        # Counted images of classes may have the same names, too.
        severity = "warning" if all(map(_PAIRED.search, names)) else "note"
        is_sign = severity == "warning" or min(map(len, stems)) >= _MIN_PAIRED
        what = "images of the same names, as pairs have" * (is_same and is_sign)
        remedy = "list them in a table with a column for each" if what else remedy
    if not what and are_numbered:
        severity, what = "note", differ
    if not what:
        return None
    verb, make = ("are read as", "confirm") if severity == "note" else ("would be", "make them the")
    text = f"{tree.root}: {some(names)}: {verb} classes, and have {what}"
    hint = f"If they are not, {remedy}. To {make} classes, add --class_level {options.depth + 1}"
    return finding(severity, "parts_as_classes", text, hint, examples=names)


def _doubt_of_splits(tree: Tree, folders: Sequence[str]) -> Finding | None:
    """Returns a finding if class folders are named like splits; a note if one may be a class."""
    names, by_rest = [*map(posixpath.basename, folders)], defaultdict[str, list[str]](list)
    for name in names:
        words = [word.lower() for word in _WORD.findall(name)]
        if not {*words}.isdisjoint(tables.SPLIT_NAMES):
            by_rest[" ".join(w for w in words if w not in tables.SPLIT_NAMES)].append(name)
    alike = next((several for several in by_rest.values() if len(several) > 1), [])
    named, others = [*filter(_is_split, names)], [n for n in names if not _is_split(n)]
    to_make = f"add --class_level {folders[0].count('/') + 1}" if folders else ""
    why = f"because {others[0]!r} is not the name of a split" if others else ""
    severity: Severity = "warning"
    if alike and len(named) < 2:  # WIDER_train, WIDER_val
        named, what = alike, "would be classes, and are named like splits"
        hint = f"{_TABLE}Name them train, test, … to make them splits of the folders in them. "
        hint += f"To make them the classes, {to_make}"
    elif named and len(named) < 2 and others:
        what, below = f"a class, not a split, {why}", _folders_in(tree, filter(_is_split, folders))
        hint = f"If it is one, with the classes {some([*map(posixpath.basename, below)])}, leave "
        hint += f"out the other folders with --exclude {shlex.quote(f'{others[0]}/')}. To make it "
        hint += f"a class, {to_make}"
        if len(below) < 2:  # photos of a train
            severity, hint = "note", ""
    elif named:
        are_many = len(named) > 1
        what = "would be classes, not splits, " if are_many else "a class, not a split, "
        what += why or f"because {'they contain' if are_many else 'it contains'} no folders"
        hint = f"{_TABLE}To make the folders the classes, {to_make}; with --split_column label "
        hint += "and a schema without classes, they are splits"
    else:
        return None
    text = f"{tree.root}: {some(named)}: {what}"
    return finding(severity, "splits_as_classes", text, hint, examples=named)


def _at_level(tree: Tree, level: int) -> tables.Sources:
    tops = _folders_at(tree, level - 2) if level > 1 else []
    above, classes = _folders_at(tree, level - 1), _folders_at(tree, level)
    if not any(_with_images(tree, classes)):
        raise UsageError(
            f"{tree.root}: has no images in folders of level {level}. Set --class_level to the "
            "level of the class folders: 1 is that of the folders directly in the input."
        )
    options, findings = FolderOptions(level - 1), tuple[Finding, ...]()
    if _splits_among(tree, above):
        options = FolderOptions(level - 1, level - 1)
    elif _has_splits_in_classes(tree, options, is_stated=True):
        options = FolderOptions(level - 1, level + 1)
    else:
        findings = (*_no_splits(tree, tops), *_no_splits(tree, classes))
    file = tables.TableFile(tree.root, "folder", options=options)
    return tables.Sources((file,), _text_of(options, f" of level {level}"), findings=findings)


def _no_splits(tree: Tree, above: Sequence[str], level: str = "") -> Iterator[Finding]:
    """Yields a warning if folders in others are named like splits, but images are beside them.

    `level` is the option that makes the other folders the classes, if it is to be added.
    """
    searched = above[:_MAX_NESTED]
    folders = _folders_in(tree, searched)
    named = sorted(_names(filter(_is_split, folders)))
    if len(named) > 1:
        flat = (n for n in searched if not tree.entries(n).folders and _has_images(tree, n))
        why, hint = "images are beside them", "move the images into them"
        if other := _unsplit(tree, folders):
            why = f"{other!r} has images and is not the name of a split"
        elif other := next(flat, ""):
            why = f"the images in {other!r} are in none"
        if other:
            hint = "leave out the other folders, as with "
            hint += f"--exclude {shlex.quote(f'{other}/')}{level}"
        text = f"{tree.root}: {', '.join(named)}: not splits, because {why}"
        hint = f"If they are splits, {hint}{level and f'. If they are not, add{level}'}"
        yield finding("warning", "splits_as_folders", text, hint, examples=named)


def _has_splits_in_classes(tree: Tree, options: FolderOptions, is_stated: bool = False) -> bool:
    """Returns whether all images of the classes are in split folders, as in cat/train/1.jpg."""
    # Unless the level is stated, a dataset's folder must not be its only class, and folders in the
    # splits may be the classes. The first class of most datasets ends the search.
    number = 0
    for name in _with_images(tree, _class_folders(tree, options)):
        splits = _splits_among(tree, _folders_in(tree, [name]))
        inner = () if is_stated else _folders_in(tree, splits)
        has_others = any(map(sniffing.has_image_suffix, tree.entries(name).files))
        if not splits or has_others or any(_with_images(tree, inner)):
            return False
        number += 1
    return number > (not is_stated)


def has_all_images(folder: str) -> bool:
    """Returns whether a folder is named like those with all images, such as train_images."""
    words = _WORD.findall(folder.lower())
    are_known = (word in tables.SPLIT_NAMES or _ALL_IMAGES.fullmatch(word) for word in words)
    return bool(words) and all(are_known)


def _containers(tree: Tree) -> str:
    """Returns the folder in which the class folders are, below folders that contain all images.

    It is data/images of data/images/cat/1.jpg and data/images/dog/2.jpg, and "" of most datasets.
    """
    above = ""
    while True:
        folders, inner = _folders_in(tree, [above]), ""
        named = [n for n in folders if has_all_images(posixpath.basename(n)) and not _is_split(n)]
        if len(named) == 1 and not any(_with_images(tree, {*folders}.difference(named))):
            inner = named[0]
        found = [*tree.entries(above).files, *tree.entries(inner).files]
        if (
            not inner
            or not tree.entries(inner).folders
            or any(map(sniffing.has_image_suffix, found))
        ):
            return above
        above = inner


def probe(tree: Tree, file: tables.TableFile) -> tables.Probe:
    """Returns the columns of a folder of images; raises UsageError if it contains none."""
    others = Counter[str]()
    for found in tree.walk():
        if isinstance(found, SkippedInput):
            continue
        if isinstance(found, str) and (other := _other_kind(tree, found)) is not None:
            others[other] += 1
        else:
            options = file.options_of(FolderOptions)
            level = options.split_level
            names = map(posixpath.basename, _folders_at(tree, level) if level else ())
            splits = tuple(dict.fromkeys(filter(_is_split, names)))
            folders = _class_folders(tree, options)
            without = _without_images(tree, folders)
            empty = _names(filter(tree.is_empty, without))
            labels = tables.DeclaredClasses((), are_names=True, unused=tuple(sorted(empty)))
            label = COLUMNS[1:2] if folders else ()
            columns = (COLUMNS[0], *label, *COLUMNS[2:], *(tables.SPLIT,) * bool(splits))
            findings = tuple(_not_classes(tree, folders, without))
            classes = {"label": labels}
            return tables.Probe(columns, True, classes=classes, splits=splits, findings=findings)
    del others[NO_IMAGE]
    seen = ", ".join(f"{number:,} {kind}" for kind, number in sorted(others.items()))
    remedies = " ".join(kind.remedy for kind in sniffing.FOREIGN.values() if kind.files in others)
    raise UsageError(
        f"{file.path}: the folder contains no image{f' but {seen}' if seen else ''}; expected a "
        f"table, or images in folders named after their classes{f'. {remedies}' if seen else ''}"
    )


def _is_split(folder: str) -> bool:
    return posixpath.basename(folder).lower() in tables.SPLIT_NAMES


def _splits_among(tree: Tree, folders: Sequence[str]) -> tuple[str, ...]:
    """Returns the folders that are named like splits; () if one of the others has images."""
    names = tuple(filter(_is_split, folders))
    return () if names and _unsplit(tree, folders) else names


def _unsplit(tree: Tree, folders: Sequence[str]) -> str:
    """Returns the first folder with images that is not named like a split; "" if there is none."""
    return next(_with_images(tree, filterfalse(_is_split, folders)), "")


def _classes_below(tree: Tree, options: FolderOptions, is_only: bool) -> list[str]:
    """Returns the folders in class folders that may be the classes: those of several names.

    The folders in cat/images and dog/images have one name, as have those with the name of the
    folder they are in. None may be if images are beside them, unless there is only one class, or if
    splits are in the class folders.
    """
    found = _with_images(tree, _class_folders(tree, options))
    for _ in range(_MAX_LEVELS * (options.split_level <= options.depth)):
        folders = list[str]()
        for folder in islice(found, _MAX_NESTED):
            if not is_only and any(map(sniffing.has_image_suffix, tree.entries(folder).files)):
                return []
            folders.append(folder)
        below = [*islice(_with_images(tree, _folders_in(tree, folders)), _MAX_NESTED)]
        names = _names(below)
        repeats = (posixpath.basename(n) == posixpath.basename(posixpath.dirname(n)) for n in below)
        if len(names) > 1 and not all(repeats):
            return (all(map(_is_split, names)) and _folders_in(tree, below)) or below
        found = iter(below)
    return []


def _images_as_class(tree: Tree, options: FolderOptions) -> str:
    """Returns the only class of a split if it has all images, or a folder `images`; or ""."""
    classes = _class_folders(tree, options)
    splits = Counter(map(posixpath.dirname, classes)) if options.is_below_splits else Counter()
    for name in classes:
        folder, above = posixpath.basename(name), posixpath.dirname(name)
        is_all = splits[above] == 1 and has_all_images(folder)
        if (is_all or _IMAGES.fullmatch(folder)) and _has_images(tree, name):
            return name
    return ""


def _has_images(tree: Tree, folder: str) -> bool:
    return has_file(tree, folder, sniffing.has_image_suffix)


def _with_images(tree: Tree, folders: Iterable[str]) -> Iterator[str]:
    return (name for name in folders if _has_images(tree, name))


def _names(folders: Iterable[str]) -> set[str]:
    return {*map(posixpath.basename, folders)}


def _folders_in(tree: Tree, folders: Iterable[str]) -> list[str]:
    return [
        posixpath.join(above, name) for above in folders for name in tree.entries(above).folders
    ]


def names_of(tree: Tree, file: tables.TableFile) -> set[str]:
    """Returns the names of the class folders."""
    return _names(_class_folders(tree, file.options_of(FolderOptions)))


def _folders_at(tree: Tree, level: int) -> list[str]:
    found = [""]
    for _ in range(level):
        found = _folders_in(tree, found)
    return found


def _class_folders(tree: Tree, options: FolderOptions) -> list[str]:
    tops = _folders_at(tree, options.depth)
    return _folders_in(tree, filter(_is_split, tops) if options.is_below_splits else tops)


def _without_images(tree: Tree, folders: Sequence[str]) -> list[str]:
    """Returns class folders without images, of which stores are asked for the first ones only."""
    searched = folders[:_MAX_NESTED] if is_url(tree.root) else folders
    return [name for name in searched if not has_file(tree, name, partial(_may_be_image, tree))]


def _not_classes(
    tree: Tree, folders: Sequence[str], without_images: Sequence[str]
) -> Iterator[Finding]:
    """Yields a warning if folders beside the classes are none, because no file is an image."""
    filled = [name for name in without_images if not tree.is_empty(name)]
    # A class may have images in another split.
    classes = _names({*folders}.difference(filled))
    if named := [name for name in filled if posixpath.basename(name) not in classes]:
        files = {n: [f for f in tree.walk(n) if isinstance(f, str)] for n in named[:_SHOWN]}
        shown = [
            f"{n}/: {counted(len(f), 'file')}, such as {min(f)}" for n, f in files.items() if f
        ]
        what = f"{counted(len(named), 'folder')} beside the classes {has(len(named))} no image"
        are = "is no class" if len(named) == 1 else "are no classes"
        text = f"{tree.root}: {what}, and {are} ({'; '.join(shown)})"
        exclude = f"--exclude {shlex.quote(f'{named[0]}/')} leaves out one that is none"
        hint = f"--classes with all names keeps their ids; {exclude}"
        yield finding("warning", "folders_without_images", text, hint, examples=named)


def _may_be_image(tree: Tree, name: str) -> bool:
    try:
        return _other_kind(tree, name) is None
    except OSError:
        return True  # a reject


def read(
    tree: Tree, part: tables.Part, projection: tables.Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image, and the skipped files."""
    skipped = defaultdict[str, list[str]](list)
    options = part.file.options_of(FolderOptions)
    has_splits = options.split_level > 0 and projection.has(tables.SPLIT)
    for name in part.names:
        try:
            other = _other_kind(tree, name)
        except OSError as error:
            uri = tree.path(name)
            yield Reject("", uri, uri, Reason.READ_ERROR, str(error.strerror or error))
            continue
        if other is not None:
            skipped[other].append(name)
        elif has_splits and name.count("/") < options.split_level:
            skipped[NO_SPLIT].append(name)
        else:
            yield _row(tree, name, part.file, projection)
    yield from (SkippedInput.named(kind, names) for kind, names in sorted(skipped.items()))


def _values_of(name: str, options: FolderOptions) -> dict[str, str]:
    """Returns the values of an image by column, from its path below the folder.

    >>> _values_of("cats/tabby/1.b.jpg", FolderOptions())
    {'image': 'cats/tabby/1.b.jpg', 'label': 'cats', 'id': '1.b'}
    >>> _values_of("train/cats/1.jpg", FolderOptions(depth=1, split_level=1))
    {'image': 'train/cats/1.jpg', 'label': 'cats', 'id': '1', 'split': 'train'}
    """
    *folders, _ = name.split("/")
    # Images above the class folders have no label, and those above the splits have neither.
    found = {"label": folders[options.depth : options.depth + 1]}
    if level := options.split_level:
        found[tables.SPLIT] = folders[level - 1 : level]
    values = {"image": name, "id": stem_of(name), **{c: f[0] for c, f in found.items() if f}}
    return {column: values[column] for column in (*COLUMNS, tables.SPLIT) if column in values}


def _row(tree: Tree, name: str, file: tables.TableFile, projection: tables.Projection) -> Row:
    uri, values = tree.path(name), _values_of(name, file.options_of(FolderOptions))
    return Row(projection.apply(values), uri, 0, is_text=True, image=Location(uri))


def _other_kind(tree: Tree, name: str) -> str | None:
    """Returns the kind of a file by its suffix or its signature; None for an image."""
    # Opening every file would be slow in an object store: only unknown suffixes need it.
    if sniffing.has_image_suffix(name):
        return None
    with tree.open(name) as stream:
        head = stream.read(sniffing.HEAD_BYTES)
    if sniffing.is_image(head):
        return None
    kind = sniffing.foreign(head)
    return kind.files if kind and kind.is_image else NO_IMAGE
