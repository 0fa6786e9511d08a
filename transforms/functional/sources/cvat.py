"""Reads CVAT for images 1.1: an `annotations.xml` that lists the images of a task or project.

Splits are the subsets of a project, and classes its labels, in their order. Boxes are those of
rectangles, and those around polygons and masks, in pixels; a rotated rectangle has the upright one.

Format: https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/. Images are in images/, or
in a folder of their subset there.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from pycocotools import mask as coco

from recordmill.schemas import tables
from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import split_rank
from recordmill.schemas.records import OTHER_SHAPES, ROTATED, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources.annotated import image_named, side_of, unread_values
from recordmill.transforms.functional.sources.tree import (
    NO_SPLIT,
    Tree,
    Use,
    head_of,
    parts_of,
    split_named,
    stem_of,
)
from recordmill.transforms.functional.values import boxes
from recordmill.transforms.functional.values.documents import DAMAGED_XML, Child, children_of
from recordmill.transforms.functional.values.typed import short_repr

COLUMNS = (
    *("image", "id", "height", "width", *boxes.BOX_COLUMNS),
    *("labels", "segmentation", "label", tables.SPLIT),
)

_NAME = "annotations.xml"
# The root of CVAT's files, and what follows it. UTF-16 is not written by CVAT.
_ROOT = re.compile(rb"<annotations>\s*<(version|meta|image|track)\b")
_IMAGES = "images"
# The subset of images that a project assigns to none; it is numbered if a subset has the name.
_NO_SUBSET = re.compile(r"(default(_\d+)?)?", re.IGNORECASE)
_MAX_FOLDERS = 8  # folders that are searched for files; class folders are more
_MAX_PIXELS = 2**28  # of an image with masks


@dataclass(frozen=True)
class CvatOptions:
    """What is known of a folder of annotations before it is read."""

    names: tuple[str, ...] = (_NAME,)  # the files, relative to the folder


def recognize_folder(tree: Tree) -> tables.Sources | None:
    """Returns a folder with files of CVAT, here or in its folders; None for others."""
    folders = tree.entries().folders
    for level in ((), folders[:_MAX_FOLDERS]) if len(folders) <= _MAX_FOLDERS else ((),):
        names = [name for folder in level or ("",) for name in _files_in(tree, folder)]
        if names:
            return _sources(tree, names)._replace(text=f"CVAT for images ({', '.join(names)})")
    return None


def _files_in(tree: Tree, folder: str) -> list[str]:
    """Returns the files of CVAT in a folder; one of other tools is not beside them."""
    names = [n for n in tree.entries(folder).files if n.lower().endswith(".xml")]
    names.sort(key=lambda name: name != _NAME)
    paths = [posixpath.join(folder, name) for name in names]
    return (
        sorted(n for n in paths if _is_cvat(tree, n)) if paths and _is_cvat(tree, paths[0]) else []
    )


def _is_cvat(tree: Tree, name: str) -> bool:
    return bool(_ROOT.search(head_of(tree, name)))


def _sources(tree: Tree, names: list[str]) -> tables.Sources:
    options = CvatOptions(tuple(names))
    file = tables.TableFile(tree.root, "cvat", image_folder=tree.root, options=options)
    return tables.Sources((file,))


def sources_in(tree: Tree) -> tables.Sources:
    """Returns a folder with files of CVAT as a source."""
    return recognize_folder(tree) or _sources(tree, [_NAME])


def sources_of_file(tree: Tree, name: str) -> tables.Sources:
    """Returns the folder of a file of CVAT, of which other files are not read."""
    if _is_cvat(tree, name):
        return _sources(tree, [name])._replace(text="CVAT for images")
    remedy = "For Pascal VOC, name the folder with Annotations/ and JPEGImages/"
    raise UsageError(f"{tree.path(name)}: is an XML file; expected annotations of CVAT. {remedy}.")


def probe(tree: Tree, file: tables.TableFile) -> tables.Probe:
    """Returns columns, classes and splits; UsageError without images, as for a file of videos."""
    labels, splits, shapes = dict[str, None](), set[str](), Counter[str]()
    for name in file.options_of(CvatOptions).names:
        found, where = 0, tree.path(name)
        try:
            with tree.open(name) as stream:
                for _, element in children_of(stream):
                    shapes[element.tag] += 1
                    if element.tag == "meta":
                        labels.update(dict.fromkeys(_labels(element)))
                    elif element.tag == "image":
                        found += 1
                        shapes.update(child.tag for child in element)
                        splits.add(_split_of(name, element))
        except DAMAGED_XML as error:
            if not found:
                raise UsageError(f"{where}: is not a valid XML file: {error}") from error
        if shapes["track"] or not found:
            raise UsageError(_without_images(where, shapes))
    classes = tables.DeclaredClasses(tuple(enumerate(labels)))
    only_tags = bool(shapes["tag"]) and not any(shapes[kind] for kind in _SHAPES)
    return tables.Probe(
        COLUMNS if splits - {""} else COLUMNS[:-1],
        has_rows=True,
        classes=dict.fromkeys(("labels", "label"), classes) if labels else {},
        splits=tuple(sorted(splits - {""}, key=split_rank)),
        preset="" if only_tags else "object_detection",
    )


def _without_images(where: str, found: Counter[str]) -> str:
    if found["track"]:
        return f"{where}: has tracks of a video. Export it as CVAT for images 1.1."
    return f"{where}: has no <image>; expected CVAT for images 1.1"


def _labels(meta: Element) -> Iterator[str]:
    """Yields the names of labels, without those of the points of skeletons."""
    for label in next(meta.iter("labels"), Element("labels")):
        if name := (label.findtext("name") or "").strip() * (label.find("parent") is None):
            yield name


def _split_of(name: str, image: Element) -> str:
    """Returns the split of an image: its subset, or else that which the path of its file names."""
    subset = image.get("subset", "")
    if not _NO_SUBSET.fullmatch(subset):
        return subset
    return split_named(name) or (
        stem_of(name) if stem_of(name).lower() in tables.SPLIT_NAMES else ""
    )


def parts(tree: Tree, file: tables.TableFile) -> Iterator[tables.Part | Reject | SkippedInput]:
    """Yields a part per file, then rejects and skipped inputs."""
    names = file.options_of(CvatOptions).names
    yield from (tables.Part(file, names=(name,)) for name in names)

    def use_of(name: str) -> Use:
        return "with another" if name in names or has_image_suffix(name) else "skipped"

    yield from parts_of(tree, file, use_of)


def read(
    tree: Tree, part: tables.Part, projection: tables.Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image or its reject, and what is not read."""
    for name in part.names:
        folders_of = cache(partial(_image_folders, tree, posixpath.dirname(name)))
        try:
            with tree.open(name) as stream:
                for child in children_of(stream):
                    if child.element.tag == "image":
                        yield from _image(tree, name, child, projection, folders_of)
        except DAMAGED_XML as error:
            detail = f"the rest of the XML document cannot be read: {error}"
            yield Reject("", "", tree.path(name), Reason.LOST_ROWS, detail)


def _image_folders(tree: Tree, above: str, subset: str) -> list[str]:
    tops = [posixpath.join(above, name) for name in (_IMAGES, "data", "")]
    found = [path for top in tops for path in (posixpath.join(top, subset), top)]
    return [f for f in dict.fromkeys(map(posixpath.normpath, found)) if f == "." or tree.has(f)]


def _image(
    tree: Tree, file: str, child: Child, projection: tables.Projection, folders_of: Any
) -> Iterator[Row | Reject | SkippedInput]:
    element, path = child.element, tree.path(file)
    name, split = element.get("name", "").replace("\\", "/"), _split_of(file, element)
    values: dict[str, Any] = {"image": name, "id": stem_of(name), tables.SPLIT: split or None}
    image = None
    try:
        if not name:
            raise RecordError(Reason.MALFORMED_ROW, "<image> has no name")
        if projection.image_root is None:
            folders = folders_of(element.get("subset", ""))
            paths = (posixpath.join(folder, name) for folder in folders)
            if not (found := next(filter(tree.has, paths), "")):
                stem = image_named(tree, folders[0], name, stem_of(name))
                found = posixpath.join(folders[0], stem)
            found = posixpath.normpath(found)
            image, values["image"] = Location(tree.path(found)), _key(found, file)
        if not split and projection.columns is not None and projection.has(tables.SPLIT):
            yield SkippedInput.named(NO_SPLIT, [name])
            return
        shapes = [shape for shape in element if shape.tag in _SHAPES]
        rotated = any(map(_rotation, shapes))
        values |= _values(element, shapes, projection)
    except RecordError as error:
        uri = image.uri if image else ""
        where = f"{path}:{child.line}"
        yield Reject(values["image"], uri, where, error.reason, f"{name}: {error.detail}")
        return
    is_used = {*_SHAPES, *("tag",) * projection.has("label")}
    others = [c.tag for c in element if c.tag not in is_used]
    attributes = ((a.get("name"), a.text or "") for a in element.iter("attribute"))
    others += unread_values(attributes, (c.get("group_id") for c in element))
    if others:
        yield SkippedInput.named(OTHER_SHAPES, [f"{name}: {kind}" for kind in others])
    if rotated:
        yield SkippedInput.named(ROTATED, [name])
    yield Row(projection.apply(values), path, child.line, image=image)


def _key(found: str, file: str) -> str:
    """Returns the path of an image below that of its file, without images/."""
    above = posixpath.dirname(file)
    below = posixpath.relpath(found, above) if above else found
    return posixpath.join(above, below.removeprefix(f"{_IMAGES}/"))


def _values(image: Element, shapes: list[Element], projection: tables.Projection) -> dict[str, Any]:
    size = (side_of(image.get("width")), side_of(image.get("height")))
    corners, outlines = list[boxes.Box](), list[Any]()
    for number, shape in enumerate(shapes, start=1):
        where = f"{shape.tag} {number}"
        corners.append(boxes.box_of(partial(_box, shape, where), projection.drops_boxes))
        if projection.has("segmentation"):
            is_box = corners[-1] is not boxes.NO_BOX
            outlines.append(_outline(shape, where, size) if is_box else [])
    tags = [_label(tag, "tag") for tag in image if tag.tag == "tag"]
    return {
        "width": size[0],
        "height": size[1],
        **boxes.box_columns(corners),
        "labels": [_label(shape, f"{shape.tag} {i}") for i, shape in enumerate(shapes, start=1)],
        "segmentation": outlines,
        "label": tags[0] if len(tags) == 1 else tags or None,
    }


def _label(shape: Element, where: str) -> str:
    label = shape.get("label", "")
    if not label:
        raise RecordError(Reason.MALFORMED_ROW, f"{where}: has no label")
    return label


def _corners(box: Element, where: str) -> list[float]:
    """Returns x and y of each corner of a rectangle, turned around its center as CVAT shows it."""
    left, top, right, bottom = (
        boxes.number_of(box.get(side), f"{where}: {side}") for side in ("xtl", "ytl", "xbr", "ybr")
    )
    return boxes.turned((left, top, right, bottom), _rotation(box))


def _rotation(shape: Element) -> float:
    """Returns the degrees, clockwise, by which a shape is turned."""
    return boxes.number_of(shape.get("rotation") or 0, f"{shape.tag}: rotation") % 360


def _points(polygon: Element, where: str) -> list[float]:
    text = polygon.get("points", "")
    points = [point.split(",") for point in text.split(";")]
    if len(points) < 3 or any(len(point) != 2 for point in points):
        detail = f"{where}: expected points as x,y;x,y;x,y, got {short_repr(text)}"
        raise RecordError(Reason.BAD_BOX, detail)
    sides = ((axis, side) for point in points for axis, side in zip("xy", point, strict=True))
    return [boxes.number_of(side.strip(), f"{where}: {axis}") for axis, side in sides]


def _corners_of_mask(mask: Element, where: str) -> list[float]:
    left, top, width, height = _mask_sides(mask, where)
    return [left, top, left + width, top + height]


def _mask_sides(mask: Element, where: str) -> tuple[int, int, int, int]:
    sides = [side_of(mask.get(side)) for side in ("left", "top", "width", "height")]
    if None in sides:
        detail = f"{where}: expected left, top, width and height as integers, got {mask.attrib}"
        raise RecordError(Reason.BAD_BOX, detail[:200])
    left, top, width, height = (side or 0 for side in sides)
    return left, top, width, height


def _run_lengths(mask: Element, where: str, size: tuple[int | None, int | None]) -> dict[str, Any]:
    """Returns a mask as the run lengths of COCO; CVAT's are those of its rows, within its box."""
    left, top, width, height = _mask_sides(mask, where)
    counts = [side_of(count) for count in mask.get("rle", "").split(",")]
    all_width, all_height = size[0] or 0, size[1] or 0
    is_inside = left + width <= all_width and top + height <= all_height
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or sum(known) != width * height or not is_inside:
        detail = f"{where}: expected run lengths of {width} x {height} pixels in the image"
        raise RecordError(Reason.WRONG_TYPE, f"{detail}, got {short_repr(mask.get('rle'))}")
    if all_width * all_height > _MAX_PIXELS:
        raise RecordError(Reason.TOO_MANY_PIXELS, f"{where}: is in {all_width} x {all_height}")
    values = np.arange(len(known), dtype=np.uint32) % 2
    pixels = np.zeros((all_height, all_width), np.uint8, order="F")
    within = np.repeat(values.astype(np.uint8), known).reshape(height, width)
    pixels[top : top + height, left : left + width] = within
    return {"size": [all_height, all_width], "counts": coco.encode(pixels)["counts"].decode()}


# By shape, the points around which its box is.
_SHAPES = {"box": _corners, "polygon": _points, "mask": _corners_of_mask}


def _box(shape: Element, where: str) -> boxes.Box:
    return boxes.box_around(_SHAPES[shape.tag](shape, where))


def _outline(shape: Element, where: str, size: tuple[int | None, int | None]) -> Any:
    is_mask = shape.tag == "mask"
    return _run_lengths(shape, where, size) if is_mask else [_SHAPES[shape.tag](shape, where)]
