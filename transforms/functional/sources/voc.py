"""Reads Pascal VOC annotations: a folder with one XML file per image.

Splits are the lists in ImageSets/Main that are named like splits, such as train.txt and val.txt, or
else the folders of the XML files, such as train and test.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html. The corners of boxes
are in pixels, counted from 1, and are kept as written.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import split_rank
from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import SPLIT, SPLIT_NAMES, Probe, Sources, TableFile
from recordmill.transforms.functional.sources.annotated import Annotated, side_of, unread_values
from recordmill.transforms.functional.sources.tree import Tree, has_file, head_of, stem_of
from recordmill.transforms.functional.values import boxes
from recordmill.transforms.functional.values.documents import DAMAGED_XML, parse_xml

_FLAGS = ("difficult", "truncated")
COLUMNS = ("image", "id", "height", "width", *boxes.BOX_COLUMNS, "labels", *_FLAGS, SPLIT)

_TURNED, _UPRIGHT = "rotated box, read as the upright box around it", ("", "0", "0.0")
# Names of folders of annotations, and of the folders of their images beside them.
_ANNOTATIONS = ("annotations", "annotation", "xmls", "xml", "labels")
_IMAGES = ("JPEGImages", "images", "Images", "Data", "data", "img", "imgs", "image")
_ROLES = frozenset((*_ANNOTATIONS, *map(str.lower, _IMAGES)))
_SETS = "ImageSets"
_LISTS = f"{_SETS}/Main"
# Of an image in several lists, the first one counts; trainval.txt also has the images of others.
_SPLITS = (*sorted(SPLIT_NAMES, key=split_rank), "trainval")
_MAX_BYTES = 16 * 2**20
_POLYGON = re.compile(rb"<(polygon|imagesize)>")


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder with VOC's layout, directly or in its folders, as VOCdevkit has; or None."""
    folders = tree.entries().folders
    is_voc = _is_voc(tree, "", folders) or any(
        _is_voc(tree, folder, tree.entries(folder).folders) for folder in folders
    )
    return sources_in(tree)._replace(text="Pascal VOC") if is_voc else None


def _is_voc(tree: Tree, root: str, folders: tuple[str, ...]) -> bool:
    for name in folders:
        if name.lower() in _ANNOTATIONS:
            if name == "Annotations" and {"JPEGImages", _SETS} & {*folders}:
                return True
            if has_file(tree, posixpath.join(root, name), FORMAT.is_annotation):
                return True
    return False


def probe(tree: Tree, file: TableFile) -> Probe:
    """Returns the columns and splits of annotations; UsageError for those of LabelMe's web tool."""
    first = FORMAT.first(tree)
    head = head_of(tree, first)
    if _POLYGON.search(head) and b"<bndbox>" not in head:
        raise UsageError(
            f"{tree.path(first)}: is an annotation of LabelMe's web tool; expected Pascal VOC. "
            "Import the folder to CVAT as LabelMe 3.0, and export it as CVAT for images 1.1."
        )
    lists = tree.entries(_list_folder(tree, posixpath.dirname(first))).files
    found = [split for split in _SPLITS if f"{split}.txt" in lists]
    return FORMAT.probe(tree, file, [s for s in found if s != "trainval" or found == [s]])


def _id_of(name: str) -> str:
    """Returns the common part of the paths of an image and its annotation.

    >>> _id_of("VOC2007/Annotations/a/1.xml"), _id_of("VOC2007/JPEGImages/a/1.jpg")
    ('VOC2007/a/1', 'VOC2007/a/1')
    """
    *folders, _ = name.split("/")
    return "/".join((*(f for f in folders if f.lower() not in _ROLES), stem_of(name)))


def _parse(
    data: bytes, drops_boxes: bool = False, others: list[str] | None = None
) -> dict[str, Any]:
    """Parses an XML file to values by column; `others` collects parts and attributes of objects."""
    try:
        root = parse_xml(data)
    except DAMAGED_XML as error:
        raise RecordError(Reason.MALFORMED_ROW, f"is not a valid XML file: {error}") from error
    # Direct children only: person layouts nest <part> elements with boxes in an <object>.
    found = list(enumerate(root.findall("object"), start=1))  # [(number for messages, element)]
    # LabelMe's web tool keeps what annotators have removed.
    numbered = [(n, e) for n, e in found if (e.findtext("deleted") or "").strip() != "1"]
    objects = [element for _, element in numbered]
    values: dict[str, Any] = {
        "image": (root.findtext("filename") or "").strip(),
        "height": side_of(root.findtext("size/height")),
        "width": side_of(root.findtext("size/width")),
        **boxes.box_columns([boxes.box_of(partial(_box, n, e), drops_boxes) for n, e in numbered]),
        "labels": [_text(element, "name", f"object {number}") for number, element in numbered],
    }
    if others is not None:
        others += ["deleted object"] * (len(found) - len(numbered))
        others += [child.tag for e in objects for child in e if child.tag == "part"]
        others += [_TURNED for e in objects if _attributes(e).get("rotation", "0") not in _UPRIGHT]
        others += unread_values(pair for e in objects for pair in _attributes(e).items())
    for flag in _FLAGS:  # one 0 or 1 per object; a missing flag is 0
        values[flag] = [int((e.findtext(flag) or "0").strip() == "1") for e in objects]
    return values


def _text(element: Element, tag: str, what: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise RecordError(Reason.MALFORMED_ROW, f"{what} has no <{tag}>")
    return text


def _box(number: int, element: Element) -> boxes.Box:
    found = element.findall("bndbox")
    if len(found) != 1:
        detail = f"object {number}: expected one <bndbox>, got {len(found)}"
        raise RecordError(Reason.BAD_BOX, detail)
    texts = [(side, (found[0].findtext(side) or "").strip()) for side in BOX_SIDES]
    texts += [("rotation", _attributes(element).get("rotation") or "0")]
    left, top, right, bottom, turn = (boxes.number_of(t, f"object {number}: {n}") for n, t in texts)
    box = left, top, right, bottom
    return boxes.box_around(boxes.turned(box, turn)) if turn else box


def _attributes(element: Element) -> dict[str, str]:
    """Returns the attributes of an object that CVAT writes, with the degrees of its rotation."""
    found = element.iter("attribute")
    return {(a.findtext("name") or "").strip(): (a.findtext("value") or "").strip() for a in found}


def _beside(tree: Tree, folder: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the folders with a folder of annotations that a folder is, or is in, innermost first.

    Each is followed by the path in the folder of annotations.
    """
    names = (posixpath.basename(tree.root), *folder.split("/")) if folder else (tree.root,)
    for i in reversed(range(len(names))):
        if posixpath.basename(names[i]).lower() in _ANNOTATIONS:
            yield posixpath.join("", *names[1 : i + 1], ".."), names[i + 1 :]


def _image_folder(tree: Tree, folder: str) -> str:
    """Returns the folder of the images of a folder of annotations: a sibling, or the same.

    Of Annotations/a/b, it is Data/a/b in ImageNet, and JPEGImages if all are in one folder.
    """
    for above, below in _beside(tree, folder):
        for inner in dict.fromkeys((below, ())):
            names = (posixpath.join(above, name, *inner) for name in _IMAGES)
            if found := next(filter(tree.has, names), None):
                return found
    return folder


def _list_folder(tree: Tree, folder: str) -> str:
    found = (posixpath.join(above, _LISTS) for above, _ in _beside(tree, folder))
    return next(filter(tree.has, found), posixpath.normpath(posixpath.join(folder, "..", _LISTS)))


def _listed_splits(tree: Tree, folder: str) -> dict[str, list[str]]:
    lists, found = _list_folder(tree, folder), dict[str, list[str]]()
    files = tree.entries(lists).files
    for split in _SPLITS:
        if f"{split}.txt" not in files:
            continue
        with tree.open(posixpath.join(lists, f"{split}.txt")) as stream:
            lines = stream.read(_MAX_BYTES).decode("utf-8-sig", "backslashreplace").splitlines()
        for id_ in (line.split()[0] for line in lines if line.strip()):
            known = found.setdefault(id_, [])
            if split not in known and not (known and split == "trainval"):
                known.append(split)
    return found


FORMAT = Annotated(
    "voc",
    ".xml",
    COLUMNS,
    "a VOC folder with Annotations/*.xml or XML beside images",
    _parse,
    # VOC2007/Annotations has the names of all its images; a/1.xml is that of another image.
    is_key=lambda path: bool(path) and posixpath.basename(path).lower() not in _ANNOTATIONS,
    id_of=_id_of,
    is_list=lambda name: _SETS in name.split("/"),
    images_of=_image_folder,
    listed_in=_listed_splits,
)

sources_in, parts, read = FORMAT.sources_in, FORMAT.parts, FORMAT.read
