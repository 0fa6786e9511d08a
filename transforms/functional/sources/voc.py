"""Reads Pascal VOC annotations: a folder with one XML file per image.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html. The corners of boxes
are in pixels, counted from 1, and are kept as written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import Probe, Projection, SourceSplit, TableFile
from recordmill.transforms.functional.sources import class_folder
from recordmill.transforms.functional.sources.class_folder import Tree, stem_of
from recordmill.transforms.functional.sources.coco import (
    CORNERS,
    PIXEL,
    Box,
    corners,
    number_of,
)

COLUMNS = (
    "image",
    "id",
    "height",
    "width",
    *CORNERS,
    "box_units",
    "labels",
    "difficult",
    "truncated",
)

_FLAGS = ("difficult", "truncated")
_FOLDERS = ("JPEGImages", "images", "Images")
_MAX_BYTES = 64 * 2**20


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns of Pascal VOC annotations.

    Args:
        tree: the folder.
        file: the folder as a source.

    Raises:
        UsageError: if the folder contains no XML file.
    """
    if not any(isinstance(found, str) and _is_annotation(found) for found in tree.walk()):
        raise UsageError(
            f"{file.path}: has no XML file; expected a VOC folder with Annotations/*.xml"
        )
    return Probe(COLUMNS, has_rows=True)


def split(tree: Tree, file: TableFile) -> Iterator[SourceSplit | Reject | SkippedInput]:
    """Yields source splits of the XML files, then rejects and skipped inputs.

    Args:
        tree: the folder.
        file: the folder as a source.
    """
    return class_folder.split(tree, file, _is_annotation)


def read(
    tree: Tree, split: SourceSplit, projection: Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each annotated image, or its reject.

    Args:
        tree: the folder.
        split: some of its XML files.
        projection: the columns to keep, and the image root.
    """
    folders: dict[str, str] = {}  # {folder of annotations: folder of their images}
    for name in split.names:
        folder = posixpath.dirname(name)
        if folder not in folders:
            folders[folder] = _image_folder(tree, folder)
        path = tree.path(name)
        try:
            with tree.open(name) as stream:
                values = parse(stream.read(_MAX_BYTES))
        except RecordError as error:
            yield Reject("", "", path, error.reason, error.detail)
            continue
        except OSError as error:
            yield Reject("", "", path, Reason.READ_ERROR, str(error.strerror or error))
            continue
        image = None
        if projection.image_root is None:
            image = Location(tree.path(posixpath.join(folders[folder], values["image"])))
        yield Row(projection.apply({**values, "id": stem_of(name)}), path, 0, image=image)


def parse(data: bytes) -> dict[str, Any]:
    """Parses one XML file to values by column.

    Raises:
        RecordError: malformed_row if the annotation is not valid, or bad_box if one of its boxes is
            not.
    """
    try:
        root = fromstring(data)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise RecordError(Reason.MALFORMED_ROW, f"is not a valid XML file: {error}") from error
    # Direct children only: person layouts nest <part> elements with boxes in an <object>.
    objects = [child for child in root if child.tag == "object"]
    numbered = list(enumerate(objects, start=1))  # [(number for messages, element)]
    values: dict[str, Any] = {
        "image": _text(root, "filename", "the annotation"),
        "height": _side(root, "height"),
        "width": _side(root, "width"),
        **corners([_box(number, element) for number, element in numbered], PIXEL),
        "labels": [_text(element, "name", f"object {number}") for number, element in numbered],
    }
    for flag in _FLAGS:  # one 0 or 1 per object; a missing flag is 0
        values[flag] = [int((e.findtext(flag) or "0").strip() == "1") for e in objects]
    return values


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
    texts = {tag: (box.findtext(tag) or "").strip() for tag in CORNERS}
    return Box(*(number_of(texts[tag], f"object {number}: {tag}") for tag in CORNERS))


def _image_folder(tree: Tree, folder: str) -> str:
    """Returns the folder of the images of a folder of annotations: a sibling, or the same."""
    if posixpath.basename(tree.path(folder)).lower() == "annotations":
        siblings = (posixpath.join(folder, "..", name) for name in _FOLDERS)
        return next((name for name in siblings if tree.has(name)), folder)
    return folder


def _is_annotation(name: str) -> bool:
    return name.lower().endswith(".xml")
