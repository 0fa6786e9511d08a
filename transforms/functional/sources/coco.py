"""Reads COCO annotations: one JSON file with images, annotations and categories.

Format: https://cocodataset.org/#format-data. The file of a large dataset may not fit in memory, so
it is streamed, and images and annotations are grouped by image id in spool files.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from recordmill.schemas import records, tables
from recordmill.schemas.config import MAX_CLASSES
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.layout import is_url
from recordmill.schemas.records import KEYPOINTS, RECTANGLES, ROTATED, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.images.masks import box_of_outline
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, not_a_table
from recordmill.transforms.functional.sources.annotated import unread_fields
from recordmill.transforms.functional.sources.tree import Tree, folder_with, head_of, other_splits
from recordmill.transforms.functional.spools import Spools
from recordmill.transforms.functional.values import boxes, documents
from recordmill.transforms.functional.values.typed import has_surrogates, short_repr

# The field with the image id, for each list.
_IDS = {"images": "id", "annotations": "image_id"}

_OF_IMAGES = ("image", "id", "height", "width")
_OF_BOXES = (*boxes.BOX_COLUMNS, "labels", "category_id", "is_crowd", "area", "segmentation")
_POINTS = ("keypoints", "keypoint_names")
_OF_LABELS = ("label", "labels", "category_id")  # of annotations without boxes, as of iNaturalist
_OF_PRESETS = {"": (), "captioning": (), "image_classification": _OF_LABELS}
COLUMNS = (*_OF_IMAGES, *_OF_BOXES, *_POINTS, "label", "caption", tables.SPLIT)  # of any file
_HEAD_ANNOTATIONS = 1000
_XYWH = 1  # the bbox_mode of detectron2 in which COCO states boxes
_READ = (
    *("id", "image_id", "category_id", "bbox", "bbox_mode", "area", "iscrowd", "segmentation"),
    *("keypoints", "num_keypoints", "caption", "segments_info", "file_name", "attributes"),
)

# Kinds of annotations in the names of COCO's files, from the preferred one; "" are other names.
_KINDS = ("instances", "", "person_keypoints", "panoptic", "captions")
_KIND = re.compile(r"(instances|person_keypoints|captions|stuff|panoptic|image_info)_(?=.)")
_COCO_LISTS = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL
)


@dataclass(frozen=True)
class CocoOptions:
    """What is known of a file of annotations before it is read."""

    images: str | None = None  # the base of relative image paths; None for the folder of the file
    masks: str | None = None  # the folder of panoptic masks
    replaced: str = ""  # the folder in the paths of the images that `images` is found instead of
    is_shared: bool = False  # whether folders of other splits have images of the same names
    has_backslashes: bool = False  # between the folders of its paths

    def address(self, name: str, base: str) -> str:
        """Returns the path of an image from its name in the file and the base of such names."""
        path = name.removeprefix(self.replaced)
        return posixpath.join(base, path.replace("\\", "/") if self.has_backslashes else path)


def probe(stream: BinaryIO, file: tables.TableFile) -> tables.Probe:
    """Returns the columns of the first annotations; raises UsageError for what is not read."""
    try:
        # A first pass finds the lists of the file, a second one reads their first entries.
        outline = documents.outline_of(stream)
        images, first = _first_entries(stream)
        categories = documents.entries_of(stream, {"categories"}, is_checked=False)
        classes, repeated = _declared(file.path, categories)
    except documents.DAMAGED_JSON as error:
        why = documents.message_of(error)
        raise UsageError(f"{file.path}: is not a JSON document: {why}") from error
    _check_lists(stream, file.path, outline, images)
    keys = {key for annotation in first if isinstance(annotation, dict) for key in annotation}
    # A list without annotations says that the images have no objects; a file without the list does
    # not, as of COCO's test set.
    is_empty = not first and "annotations" in outline
    preset = "object_detection" if is_empty and classes else _preset_of(keys, first)
    if preset == "panoptic" and file.options_of(CocoOptions).masks is None:
        folder = posixpath.splitext(file.path)[0]
        what = f"expected the PNG files of its panoptic annotations in {folder}, got none"
        raise UsageError(f"{file.path}: {what}. Add the folder.")
    boxes.check_no_corners(file.path, [a for a in first if isinstance(a, dict)])
    columns = _OF_IMAGES + _OF_PRESETS.get(preset, _OF_BOXES) + _POINTS * (preset == "keypoints")
    return tables.Probe(
        columns + ("caption",) * ("caption" in keys),
        has_rows=True,
        classes=dict.fromkeys({"label", "labels"} & {*columns}, classes) if classes else {},
        preset=preset,
        findings=tuple(_findings(file, first, is_empty, repeated)),
    )


def _check_lists(stream: BinaryIO, path: str, outline: Any, images: int) -> None:
    stream.seek(0)
    if not images and (what := not_a_table(stream.read(64 * HEAD_BYTES))):
        raise UsageError(f"{path}: expected COCO, got {what}")
    for name in ("images", "annotations", "categories"):
        if isinstance(outline, dict) and not isinstance(outline.get(name, []), list):
            found = type(outline[name]).__name__
            raise UsageError(f"{path}: {name!r}: expected a list of objects, got {found}")
    if isinstance(outline, list):
        raise UsageError(
            f"{path}: expected a COCO file or one JSON object per line, got an array. Write "
            "each object on a line of its own, as jq -c '.[]' does, to a file that ends in .jsonl."
        )
    if not images:
        remedy = "For one JSON object per line, use --input_format jsonl"
        raise UsageError(f"{path}: expected a COCO file with 'images', got none. {remedy}")


def _preset_of(keys: set[str], annotations: list[Any]) -> str:
    if "segments_info" in keys:
        return "panoptic"
    if "keypoints" in keys and any(isinstance(a, dict) and a.get("keypoints") for a in annotations):
        return "keypoints"
    if "bbox" in keys or "segmentation" in keys:
        return "object_detection"
    if "caption" in keys:
        return "captioning"
    return "image_classification" if "category_id" in keys else ""


def _findings(
    file: tables.TableFile, first: list[Any], empty: bool, same: list[str]
) -> Iterator[Finding]:
    path, options = file.path, file.options_of(CocoOptions)
    if file.image_folder and (options.replaced or options.is_shared):  # without --image_root
        why = "folders of other splits have images of these names"
        why = f"{options.replaced} is no folder" if options.replaced else why
        text = f"{path}: {why}; its images are read from {options.images}"
        yield finding("note", "images_in_other_folder", text, "--image_root DIR names another")
    if empty:
        text = f"{path}: has no annotation; its images are converted as images without objects"
        yield finding("warning", "no_annotations", text)
    if any(_lacks_box(a) for a in first if isinstance(a, dict)):
        text = f"{path}: annotations without bbox; their boxes are those around the segmentation"
        yield finding("note", "boxes_of_outlines", text)
    yield from unread_fields(path, first, _READ)
    if same:
        text = f"{path}: categories of one name become one class ({some(same)})"
        hint = "if they differ, rename one of the two in the file"
        yield finding("warning", "repeated_categories", text, hint, examples=same)


def _lacks_box(annotation: dict[str, Any]) -> bool:
    return "bbox" not in annotation and "segmentation" in annotation


def _declared(
    path: str, found: Iterator[documents.JsonEntry]
) -> tuple[tables.DeclaredClasses | None, list[str]]:
    """Returns the classes in `categories` if all ids are integers, and names with several ids."""
    names, repeated = dict[str, int](), list[str]()
    for number, (_, entry, _) in enumerate(found):
        if number == MAX_CLASSES:
            what = f"expected at most {MAX_CLASSES:,} categories, got more"
            raise UsageError(f"{path}: {what}. Remove those without annotations.")
        id_, name = map(entry.get, ("id", "name")) if isinstance(entry, dict) else (None, None)
        if isinstance(id_, bool) or not isinstance(id_, int):
            return None, []
        # Rows with another id of the same name have the same class.
        if isinstance(name, str) and (first := names.setdefault(name, id_)) != id_:
            repeated.append(f"{name}: {first} and {id_}")
    classes = tables.DeclaredClasses(tuple(sorted((i, name) for name, i in names.items())))
    return classes if names else None, repeated


def _names_in(stream: BinaryIO, list_: str) -> Iterator[str]:
    """Yields the paths of the images, or those of the masks of `annotations`."""
    with contextlib.suppress(*documents.DAMAGED_JSON):  # what is read later is rejected
        entries = documents.entries_of(stream, {list_}, is_checked=False)
        names = (_path_of(entry.value) for entry in entries if isinstance(entry.value, dict))
        yield from (name for name in names if isinstance(name, str) and name)


def _path_of(entry: dict[str, Any]) -> Any:
    """Returns `file_name`, or what it is instead; in LVIS, the path in `coco_url`.

    >>> _path_of({"coco_url": "http://images.cocodataset.org/val2017/000000397133.jpg"})
    'val2017/000000397133.jpg'
    """
    url = entry.get("coco_url")
    if "file_name" in entry or not isinstance(url, str) or not is_url(url):
        return entry.get("file_name")
    return url.partition("://")[2].partition("/")[2]


def recognize_folder(tree: Tree) -> tables.Sources | None:
    """Returns the files of a folder with COCO annotations of one kind as sources, or None."""
    by_kind: dict[str, list[str]] = {}
    for name in _json_files(tree):
        match = _KIND.match(posixpath.basename(name))
        by_kind.setdefault(match[1] if match else "", []).append(name)
    kind = next((kind for kind in _KINDS if kind in by_kind), None)
    if kind is None:
        return None
    found = {name: _file_in(tree, name) for name in by_kind[kind]}
    splits = {name: dict(file.partition).get(tables.SPLIT) or "" for name, file in found.items()}
    if any(file.partition for file in found.values()):
        # Beside train.json and val.json, all.json has the same images, or those of no split.
        found = {name: file for name, file in found.items() if file.partition}
    files = [replace(file, image_folder=tree.root) for file in found.values()]
    others = sorted(n for names in by_kind.values() for n in names if n not in found)
    unread = f"; not read: {', '.join(others)}" if others else ""
    text, findings = f"COCO ({', '.join(found)}{unread})", tuple(other_splits(tree.root, splits))
    return tables.Sources(_with_key_prefixes(files), text, findings=findings)


def sources_of_file(tree: Tree, name: str) -> tables.Sources:
    """Returns a file with its split, and the folder of its images if that is another one."""
    whole, inner, above = tree, name, posixpath.basename(tree.root)
    if above.lower() in ("annotations", "labels"):
        whole, inner = tree.at(posixpath.dirname(tree.root) or "."), posixpath.join(above, name)
    file = replace(_file_in(whole, inner), path=tree.path(name))
    options = file.options_of(CocoOptions)
    if replace(options, masks=None) == CocoOptions(whole.path(posixpath.dirname(inner))):
        return tables.Sources((replace(file, options=replace(options, images=None)),))
    return tables.Sources((file,), f"COCO, with images in {options.images}")


def _file_in(tree: Tree, name: str) -> tables.TableFile:
    """Returns a COCO file as a source, with its split and the folder of its images."""
    folder, masks = posixpath.dirname(name), posixpath.splitext(name)[0]
    stem = _KIND.sub("", posixpath.basename(masks))
    named = {word for word in re.findall("[A-Za-z]+", stem) if word.lower() in tables.SPLIT_NAMES}
    above = posixpath.basename(folder)  # test-dev2017 is a set of its own
    split = named.pop() if len(named) == 1 else above if above.lower() in tables.SPLIT_NAMES else ""
    names = tuple(dict.fromkeys(n for n in (stem, split) if n and not n.startswith("_")))
    partition = ((tables.SPLIT, split),) if split else ()
    folder_of_masks = tree.path(masks) if "panoptic" in masks and tree.has(masks) else None
    options = replace(_image_folder(tree, name, names, split), masks=folder_of_masks)
    return tables.TableFile(tree.path(name), "coco", partition=partition, options=options)


def _with_key_prefixes(files: Sequence[tables.TableFile]) -> tuple[tables.TableFile, ...]:
    """Returns COCO files whose keys begin with the folder of the images, if these have several.

    Tools that export each split to a folder of its own number the images of each from 1.
    """
    folders = [file.options_of(CocoOptions).images or "" for file in files]
    top = posixpath.commonpath(folders)
    prefixes = [f"{posixpath.relpath(folder, top)}/".removeprefix("./") for folder in folders]
    return tuple(replace(f, key_prefix=p) for f, p in zip(files, prefixes, strict=True))


def named_images(stream: BinaryIO, file: tables.TableFile) -> Iterator[str]:
    """Yields the addresses of the images and masks that a file names, which takes no rows."""
    options = file.options_of(CocoOptions)
    base = options.images or posixpath.dirname(file.path)
    yield from (options.address(path, base) for path in _names_in(stream, "images"))
    if options.masks:
        masks = _names_in(stream, "annotations")
        yield from (posixpath.join(options.masks, name) for name in masks)


def _image_folder(tree: Tree, name: str, likely_names: tuple[str, ...], split: str) -> CocoOptions:
    """Returns to which folder the paths in a COCO file refer, as `folder_with` does."""
    folder = posixpath.dirname(name)
    below = [posixpath.join(top, n) for top in ("", "images") for n in likely_names]
    likely = [folder, *below, posixpath.join(folder, "data"), "images", "data", "JPEGImages", ""]
    with tree.open(name) as stream:
        first = next(_names_in(stream, "images"), "")
    found = [one for one in likely if first and tree.has(posixpath.join(one, first))]
    above, own = posixpath.split(first)
    if found or (first.startswith("/") and tree.at(above).has(own)):  # a path of this machine
        return CocoOptions(tree.path([*found, folder][0]))
    images, replaced, is_shared = folder_with(tree, first, split) or (folder, "", False)
    return CocoOptions(tree.path(images), None, replaced, is_shared, "\\" in first)


def _json_files(tree: Tree) -> Iterator[str]:
    """Yields the paths of COCO files: in the folder, in annotations/, or beside their images."""
    annotating = {*tables.SPLIT_NAMES, "annotations", "labels"}
    for folder in ("", *(n for n in tree.entries().folders if n.lower() in annotating)):
        for name in tree.entries(folder).files:
            path = posixpath.join(folder, name)
            if name.lower().endswith(".json") and _COCO_LISTS.match(head_of(tree, path)):
                yield path


def read(
    stream: BinaryIO, part: tables.Part, projection: tables.Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image or its reject, and a `lost_rows` reject for damaged JSON."""
    try:
        with Spools() as spools:
            images = _Images(part.file, projection, spools)
            yield from images.spool(stream)
            yield from images.rows()
    except documents.DAMAGED_JSON as error:
        detail = f"the rest of the JSON document cannot be read: {documents.message_of(error)}"
        yield Reject("", "", part.file.path, Reason.LOST_ROWS, detail)


class _Entry(NamedTuple):
    number: int  # its position in the list, counted from 1
    id: int | str
    fault: str
    values: dict[str, Any]  # the fields of the object; empty if it has a fault


def _first_entries(stream: BinaryIO) -> tuple[int, list[Any]]:
    """Returns the number of images read, which is 0 only for none, and the first annotations."""
    images, annotations = 0, list[Any]()
    for name, entry, _ in documents.entries_of(stream, _IDS):
        images += name == "images"
        annotations += [entry] if name == "annotations" else []
        if images and len(annotations) >= _HEAD_ANNOTATIONS:
            break
    return images, annotations


@dataclass
class _Images:
    """The images of a file, with their annotations, which may precede them."""

    file: tables.TableFile
    projection: tables.Projection
    spools: Spools  # [(list, _Entry)] by image id
    # The names of categories by their id, as JSON. A valid id has one name; the name None marks an
    # entry with a duplicate field.
    names: dict[str, set[str | None]] = field(default_factory=dict)
    keypoints: dict[str, list[str]] = field(default_factory=dict)  # their names, by the same id

    def spool(self, stream: BinaryIO) -> Iterator[Reject]:
        """Spools all entries and collects the categories; yields rejects of entries without id."""
        numbers = Counter[str]()
        for kind, entry, fault in documents.entries_of(stream, {*_IDS, "categories"}):
            if kind == "categories":
                self._add_category(entry, fault)
                continue
            numbers[kind] += 1
            id_name, number = _IDS[kind], numbers[kind]
            id_ = entry.get(id_name) if isinstance(entry, dict) else None
            if isinstance(id_, bool) or not isinstance(id_, int | str):
                expected = f"expected an object whose {id_name!r} is an integer or text"
                detail = f"{kind}, number {number}: {expected}, got {short_repr(id_)}"
                yield Reject("", "", self.file.path, Reason.MALFORMED_ROW, detail)
                continue
            if not fault and _lacks_box(entry) and self.projection.has(boxes.BOX_COLUMNS[0]):
                _add_box(entry)
            if not fault:
                _turn_box(entry)
            if not self.projection.has("segmentation"):
                # Outlines make up most of a COCO file.
                entry.pop("segmentation", None)
            # 5 and "5" are in one group, so that `_check` can report the mismatch of types.
            self.spools.add(str(id_), (kind, (number, id_, fault, {} if fault else entry)))

    def _add_category(self, entry: Any, fault: str) -> None:
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str):
            id_ = json.dumps(entry.get("id"))
            # With a duplicate field, the name or the id is ambiguous.
            self.names.setdefault(id_, set()).add(None if fault else name)
            points = entry.get("keypoints")
            if isinstance(points, list) and points and all(isinstance(p, str) for p in points):
                self.keypoints[id_] = points

    def rows(self) -> Iterator[Row | Reject | SkippedInput]:
        """Yields the row of each image or its reject, and annotations without an image."""
        fault = self._fault()
        for group in self.spools.groups():
            by_kind = {one: [_Entry(*e) for kind, e in group if kind == one] for one in _IDS}
            if by_kind["images"]:
                yield from self._rows_of(by_kind["images"], by_kind["annotations"], fault)
            else:
                known = ((a.values.get("id", a.number), a.id) for a in by_kind["annotations"])
                named = "annotation {} of image_id {}".format
                names = [named(short_repr(a), short_repr(b)) for a, b in known]
                yield SkippedInput.named(records.UNMATCHED_ANNOTATIONS, names)

    def _fault(self) -> str:
        """Returns the reason to reject all images if no annotation matches an image, else ""."""
        has_annotations = False
        for group in self.spools.groups():
            kinds = {kind for kind, _ in group}
            if kinds == _IDS.keys():
                return ""
            has_annotations |= "annotations" in kinds
        what = "no annotation of the file has the id of one of its images as image_id. "
        return f"{what}{records.SAME_FILE}" if has_annotations else ""

    def _rows_of(
        self, images: list[_Entry], annotations: list[_Entry], fault: str
    ) -> Iterator[Row | Reject | SkippedInput]:
        """Yields the rows of images with one id, or with two ids of the same text, as 5 and "5"."""
        first: dict[int | str, _Entry] = {}
        for entry in images:
            if (other := first.setdefault(entry.id, entry)) is not entry:
                detail = f"duplicate image id {entry.id!r}, first seen in number {other.number}"
                yield self._reject(entry, RecordError(Reason.MALFORMED_ROW, detail))
        # Annotations whose id is text where that of the image is a number, or vice versa.
        others = [annotation for annotation in annotations if annotation.id not in first]
        for entry in first.values():
            own = [a for a in annotations if a.id == entry.id]
            try:
                _check(entry, own, others, fault)
                values = self._values(entry.values, own)
                for kind in self._left_out([a.values for a in own]):
                    yield SkippedInput.named(kind, [values["image"]])
                image = self._location(values["image"])
                yield Row(self.projection.apply(values), self.file.path, entry.number, image=image)
            except RecordError as error:
                yield self._reject(entry, error)

    def _left_out(self, annotations: list[dict[str, Any]]) -> Iterator[str]:
        """Yields the kinds of skipped inputs that an image is."""
        if not self.projection.has("keypoints") and any(a.get("keypoints") for a in annotations):
            yield KEYPOINTS
        if any(a.get("attributes") == ROTATED for a in annotations):
            yield ROTATED
        # A box with an empty outline, as CVAT writes rectangles.
        empty = (a for a in annotations if a.get("segmentation") == [])
        if self.projection.has("segmentation") and any(a.get("bbox") for a in empty):
            yield RECTANGLES

    def _location(self, name: str) -> Location | None:
        options = self.file.options_of(CocoOptions)
        if options.images is None or self.projection.image_root is not None or is_url(name):
            return None
        return Location(options.address(name, options.images))

    def _reject(self, entry: _Entry, error: RecordError) -> Reject:
        name, path = _path_of(entry.values), self.file.path
        key = name if isinstance(name, str) and not has_surrogates(name) else ""
        location = self._location(key) if key else None
        base = self.projection.image_root or posixpath.dirname(path)
        uri = location.uri if location else posixpath.join(base, key) if key else ""
        # The source has the number of the image in the file; people look for its name.
        detail = f"{key}: {error.detail}" if key else error.detail
        return Reject(key, uri, f"{path}:{entry.number}", error.reason, detail)

    def _values(self, entry: dict[str, Any], annotations: list[_Entry]) -> dict[str, Any]:
        name, projection = _path_of(entry), self.projection
        if not isinstance(name, str) or not name or has_surrogates(name):
            detail = f"file_name: expected text, got {short_repr(name)}"
            raise RecordError(Reason.MALFORMED_ROW, detail)
        numbered = [pair for a in annotations for pair in self._objects(a)]
        # Captions are annotations without a box and a category.
        objects = [(number, a) for number, a in numbered if "bbox" in a or "category_id" in a]
        boxed = projection.has(boxes.BOX_COLUMNS[0]) or any("bbox" in a for _, a in objects)
        box_of = partial(boxes.box_of, drops_invalid=projection.drops_boxes)
        corners = [box_of(partial(_box, *pair)) for pair in objects if boxed]
        labels = [self._category_name(*pair) for pair in objects]
        values = {
            "image": name,
            "id": str(entry["id"]),
            "height": entry.get("height"),
            "width": entry.get("width"),
            **boxes.box_columns(corners),
            "labels": labels,
            "label": labels[0] if len({*labels}) == 1 else labels or None,
            "category_id": [a.get("category_id") for _, a in objects],
            "is_crowd": [a.get("iscrowd") or 0 for _, a in objects],
            "caption": [a["caption"] for _, a in numbered if "caption" in a],
        }
        # These columns have one item per object, so they are omitted if any object lacks one.
        if all(a.get("area") is not None for _, a in objects):
            values["area"] = [a["area"] for _, a in objects]
        if all("segmentation" in a for _, a in objects):
            values["segmentation"] = [_outline(number, a) for number, a in objects]
        asked = projection.columns or (_POINTS if self.keypoints else ())
        return values | (self._keypoints(objects) if {*_POINTS} & {*asked} else {})

    def _objects(self, annotation: _Entry) -> Iterator[_Numbered]:
        """Yields the objects of an annotation: itself, or the segments of a panoptic one."""
        segments = annotation.values.get("segments_info")
        if segments is None:
            yield annotation.number, annotation.values
            return
        base = self.projection.image_root or posixpath.dirname(self.file.path) or "."
        folder = posixpath.relpath(self.file.options_of(CocoOptions).masks or base, base)
        name = annotation.values.get("file_name")
        if not isinstance(segments, list) or not isinstance(name, str) or has_surrogates(name):
            what = f"annotation {annotation.number}: expected file_name and a list segments_info"
            raise RecordError(Reason.MALFORMED_ROW, what)
        for segment in (found for found in segments if isinstance(found, dict)):
            outline = {"segment": segment.get("id"), "file": posixpath.join(folder, name)}
            yield annotation.number, {**segment, "segmentation": outline}

    def _keypoints(self, objects: list[_Numbered]) -> dict[str, Any]:
        """Returns the keypoints of all objects, which are 0 if it has none, and their names."""
        named = [self.keypoints.get(json.dumps(a.get("category_id")), []) for _, a in objects]
        found = [a.get("keypoints") or [] for _, a in objects]
        for (number, _), points, names in zip(objects, found, named, strict=True):
            count = len(names) * 3
            if not isinstance(points, list) or (points and count and len(points) != count):
                what = f"annotation {number}: keypoints: expected {count or 'a list of'} numbers"
                raise RecordError(Reason.MALFORMED_ROW, f"{what}, got {short_repr(points)}")
        most = max([0, *(len(p) // 3 for p in found), *map(len, self.keypoints.values())])
        pairs = zip(found, named, strict=True)
        filled = [points or [0] * 3 * (len(names) or most) for points, names in pairs]
        return {"keypoints": filled, "keypoint_names": named if all(named) else None}

    def _category_name(self, number: int, annotation: dict[str, Any]) -> str:
        category = annotation.get("category_id")
        names = self.names.get(json.dumps(category), set())
        if len(names) == 1 and (name := next(iter(names))) is not None:
            return name
        which = f"annotation {number}: category_id {short_repr(category)}"
        detail = f"{which} is not declared in 'categories'"
        if names:
            listed = ", ".join(sorted(short_repr(name) for name in names if name is not None))
            several = f"is the id of several categories{': ' * bool(listed)}{listed}"
            detail = f"{which} {several}. Give each a unique id."
        raise RecordError(Reason.UNKNOWN_LABEL, detail)


# An object of an image, after the number of its annotation in the file.
_Numbered: TypeAlias = tuple[int, dict[str, Any]]


def _add_box(annotation: dict[str, Any]) -> None:
    """Adds the box around the outline of an annotation; a box that is missing is rejected later."""
    with contextlib.suppress(RecordError):
        xmin, ymin, xmax, ymax = box_of_outline(annotation["segmentation"])
        annotation["bbox"] = [xmin, ymin, xmax - xmin, ymax - ymin]


def _turn_box(annotation: dict[str, Any]) -> None:
    """Replaces a rectangle that CVAT has turned by its outline, and the upright box around that."""
    attributes = annotation.get("attributes")
    angle: Any = attributes.get("rotation") if isinstance(attributes, dict) else None
    if type(angle) in (int, float) and angle % 360 and not annotation.get("segmentation"):
        try:
            corners = boxes.turned(_box(0, annotation), angle)
        except RecordError:  # is rejected later
            return
        annotation["attributes"], annotation["segmentation"] = ROTATED, [corners]
        annotation["bbox"] = list(boxes.convert_box(boxes.box_around(corners), "xywh"))


def _check(entry: _Entry, annotations: list[_Entry], others: list[_Entry], fault: str) -> None:
    """Raises RecordError if a record cannot have all annotations of its image.

    `others` are the annotations whose image id differs only in its type.
    """
    faults = [entry.fault, *(f"annotation {a.number}: {a.fault}" for a in annotations if a.fault)]
    for other in others:
        ids = f"image_id {short_repr(other.id)} and the image id {short_repr(entry.id)}"
        faults.append(f"annotation {other.number}: {ids} differ in type. Write both as numbers.")
    if why := next(filter(None, [*faults, fault]), ""):
        raise RecordError(Reason.MALFORMED_ROW, why)


def _outline(number: int, annotation: dict[str, Any]) -> Any:
    """Returns an outline: that of the box for an empty one, as CVAT draws it in its masks."""
    if annotation["segmentation"] != [] or not annotation.get("bbox"):
        return annotation["segmentation"]
    # An invalid box is rejected or dropped itself.
    box = boxes.box_of(partial(_box, number, annotation), drops_invalid=True)
    return boxes.polygons_around(box)


def _box(number: int, annotation: dict[str, Any]) -> boxes.Box:
    """Returns the box of an annotation from its [x, y, width, height]."""
    box = annotation.get("bbox")
    if (mode := annotation.get("bbox_mode", _XYWH)) != _XYWH:
        what = f"expected bbox_mode {_XYWH} (x, y, width, height), got {mode!r}"
        raise RecordError(Reason.BAD_BOX, f"annotation {number}: {what}")
    if not isinstance(box, list) or len(box) != 4:
        detail = f"annotation {number}: bbox: expected four numbers, got {short_repr(box)}"
        raise RecordError(Reason.BAD_BOX, detail)
    x, y, width, height = (boxes.number_of(value, f"annotation {number}: bbox") for value in box)
    return boxes.TO_CORNERS["xywh"](x, y, width, height)
