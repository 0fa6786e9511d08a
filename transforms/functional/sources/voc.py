"""Reads Pascal VOC annotations: a folder with one XML file per image.

Splits are the lists in ImageSets/Main that are named like splits, such as train.txt and val.txt, or
else the folders of the XML files, such as train and test.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html. The corners of boxes
are in pixels, counted from 1, and are kept as written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import BOX_SIDES
from recordmill.schemas.layout import split_rank
from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import (
    SPLIT,
    SPLIT_NAMES,
    Part,
    Probe,
    Projection,
    Sources,
    TableFile,
)
from recordmill.transforms.functional.sources.tree import (
    NO_SPLIT,
    SEVERAL_SPLITS,
    Tree,
    annotated_parts,
    row_of_file,
    split_folders,
    split_named,
    stem_of,
)
from recordmill.transforms.functional.values.boxes import (
    BOX_COLUMNS,
    Box,
    box_columns,
    box_of,
    number_of,
)

COLUMNS = (
    "image",
    "id",
    "height",
    "width",
    *BOX_COLUMNS,
    "labels",
    "difficult",
    "truncated",
    SPLIT,
)

UNLISTED = "annotations of images that no list in ImageSets/Main names"
UNANNOTATED = "images without an XML file"

_FLAGS = ("difficult", "truncated")
_FOLDERS = ("JPEGImages", "images", "Images")
_SETS = "ImageSets"
_LISTS = f"{_SETS}/Main"
# Of an image in several lists, the first one counts; trainval.txt also has the images of others.
_SPLITS = (*sorted(SPLIT_NAMES, key=split_rank), "trainval")
_MAX_BYTES = 16 * 2**20
# The maximum nesting of elements, as of JSON.
_MAX_DEPTH = 64


@dataclass(frozen=True)
class VocOptions:
    """What is known of a folder of annotations before it is read."""

    has_split_folders: bool = False  # whether folders named like splits are the splits


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder with VOC's layout, directly or in its folders, as VOCdevkit has; or None."""
    folders = tree.entries().folders
    is_voc = _is_voc(tree, "", folders) or any(
        _is_voc(tree, folder, tree.entries(folder).folders) for folder in folders
    )
    return sources_in(tree)._replace(text="Pascal VOC") if is_voc else None


def _is_voc(tree: Tree, root: str, folders: tuple[str, ...]) -> bool:
    for name in folders:
        if name.lower() == "annotations":
            if "JPEGImages" in folders or "ImageSets" in folders:
                return True
            annotations = posixpath.join(root, name)
            below = (annotations, posixpath.join(annotations, "xmls"))
            return any(_is_annotation(file) for f in below for file in tree.entries(f).files)
    return False


def sources_in(tree: Tree) -> Sources:
    """Returns a folder of annotations as a source."""
    has_splits = bool(split_folders(tree, _is_annotation))
    return Sources((TableFile(tree.root, "voc", options=VocOptions(has_splits)),))


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns of Pascal VOC annotations.

    Raises UsageError if the folder contains no XML file.
    """
    first = next((n for n in tree.walk() if isinstance(n, str) and _is_annotation(n)), None)
    if first is None:
        raise UsageError(
            f"{file.path}: has no XML file; expected a VOC folder with Annotations/*.xml"
        )
    lists = tree.entries(_list_folder(posixpath.dirname(first))).files
    found = [split for split in _SPLITS if f"{split}.txt" in lists]
    splits = tuple(split for split in found if split != "trainval" or found == ["trainval"])
    if file.options_of(VocOptions).has_split_folders and not splits:
        splits = split_folders(tree, _is_annotation)
    return Probe(COLUMNS, has_rows=True, splits=splits, preset="object_detection")


def parts(tree: Tree, file: TableFile) -> Iterator[Part | Reject | SkippedInput]:
    """Yields parts of the XML files, then rejects and skipped inputs."""
    return annotated_parts(
        tree,
        file,
        _is_annotation,
        stem_of,
        UNANNOTATED,  # as of test images in VOC2007
        is_list=lambda name: _SETS in name.split("/"),
    )


def read(tree: Tree, part: Part, projection: Projection) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each annotated image, or its reject."""
    folders: dict[str, str] = {}  # {folder of annotations: folder of their images}
    listed: dict[str, dict[str, str]] = {}  # {folder of annotations: {id: split}}
    repeated = set[tuple[str, str]]()  # (folder of annotations, id) in the lists of several splits
    has_splits = projection.has(SPLIT)
    has_split_folders = part.file.options_of(VocOptions).has_split_folders
    by_folder = has_splits and has_split_folders
    for name in part.names:
        folder, id_ = posixpath.dirname(name), stem_of(name)
        if folder not in folders:
            folders[folder] = _image_folder(tree, folder)
            listed[folder] = _listed_splits(tree, folder, repeated) if has_splits else {}
        by_name = split_named(name) if by_folder else None
        of_image = listed[folder].get(id_) if listed[folder] else by_name
        if (listed[folder] or by_folder) and of_image is None:
            # Lists name the images of the task: half of VOC2012.
            yield SkippedInput.named(UNLISTED if listed[folder] else NO_SPLIT, [name])
            continue
        if (folder, id_) in repeated:
            yield SkippedInput.named(SEVERAL_SPLITS, [name])
        yield row_of_file(
            tree,
            name,
            projection,
            partial(_parse, drops_boxes=projection.drops_boxes),
            folder=folders[folder],
            split=of_image,
            has_folders=has_split_folders,  # train/1.jpg and test/1.jpg are different images
        )


def _parse(data: bytes, drops_boxes: bool = False) -> dict[str, Any]:
    """Parses one XML file to values by column.

    Raises RecordError (malformed_row) if the annotation is not valid, or bad_box if one of its
    boxes is not, and invalid boxes are not dropped.
    """
    try:
        root = _parsed(data)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise RecordError(Reason.MALFORMED_ROW, f"is not a valid XML file: {error}") from error
    # Direct children only: person layouts nest <part> elements with boxes in an <object>.
    objects = [child for child in root if child.tag == "object"]
    numbered = list(enumerate(objects, start=1))  # [(number for messages, element)]
    values: dict[str, Any] = {
        "image": _text(root, "filename", "the annotation"),
        "height": _side(root, "height"),
        "width": _side(root, "width"),
        **box_columns([box_of(partial(_box, n, e), drops_boxes) for n, e in numbered]),
        "labels": [_text(element, "name", f"object {number}") for number, element in numbered],
    }
    for flag in _FLAGS:  # one 0 or 1 per object; a missing flag is 0
        values[flag] = [int((e.findtext(flag) or "0").strip() == "1") for e in objects]
    return values


def _parsed(data: bytes) -> Element:
    """Returns the root of an XML document that has no document type, and thus no entities."""
    parser, builder, depth = expat.ParserCreate(), TreeBuilder(), 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"nested too deeply: more than {_MAX_DEPTH} levels of elements")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    def stop(*_: object) -> None:
        # Entities can expand without end, or name files: nothing of VOC needs them.
        raise ValueError("it has a document type (DOCTYPE). Remove it")

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = stop
    parser.Parse(data, True)
    return builder.close()


def _text(element: Element, tag: str, what: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise RecordError(Reason.MALFORMED_ROW, f"{what} has no <{tag}>")
    return text


def _side(root: Element, tag: str) -> int | None:
    """Returns the stated height or width in pixels; None if it is missing or not a number."""
    text = (root.findtext(f"size/{tag}") or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _box(number: int, element: Element) -> Box:
    box = element.find("bndbox")
    if box is None:
        raise RecordError(Reason.BAD_BOX, f"object {number} has no <bndbox>")
    xmin, ymin, xmax, ymax = (
        number_of((box.findtext(side) or "").strip(), f"object {number}: {side}")
        for side in BOX_SIDES
    )
    return xmin, ymin, xmax, ymax


def _image_folder(tree: Tree, folder: str) -> str:
    """Returns the folder of the images of a folder of annotations: a sibling, or the same."""
    if posixpath.basename(tree.path(folder)).lower() == "annotations":
        siblings = (posixpath.join(folder, "..", name) for name in _FOLDERS)
        return next((name for name in siblings if tree.has(name)), folder)
    return folder


def _list_folder(folder: str) -> str:
    return posixpath.normpath(posixpath.join(folder, "..", _LISTS)) if folder else _LISTS


def _listed_splits(tree: Tree, folder: str, repeated: set[tuple[str, str]]) -> dict[str, str]:
    """Returns the split of each id in the lists for a folder of annotations.

    `repeated`: collects the folder and id of those that are in several.
    """
    lists, found = _list_folder(folder), dict[str, str]()
    files = tree.entries(lists).files
    for split in _SPLITS:
        if f"{split}.txt" not in files:
            continue
        with tree.open(posixpath.join(lists, f"{split}.txt")) as stream:
            lines = stream.read(_MAX_BYTES).decode("utf-8-sig", "backslashreplace").splitlines()
        for line in filter(str.strip, lines):
            id_ = line.split()[0]
            if found.setdefault(id_, split) != split and split != "trainval":
                repeated.add((folder, id_))
    return found


def _is_annotation(name: str) -> bool:
    """Returns whether a file is an annotation by its suffix."""
    return name.lower().endswith(".xml")
