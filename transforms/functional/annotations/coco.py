"""COCO annotations: one JSON file of pictures, of what is on them, and of its categories.

Source of the format: https://cocodataset.org/#format-data. The file is streamed, since those of
large datasets exceed memory: its pictures and annotations are put by picture into spool files that
are read back one after the other.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, BinaryIO

import ijson

from schemas.errors import UsageError
from schemas.records import Aside, Row
from schemas.rejects import Reason, RecordError, Reject
from schemas.tables import Head, TableFile, TablePart, Wanted
from transforms.functional.annotations.annotation_columns import (
    CORNERS,
    PIXEL,
    Box,
    corners,
    number_of,
)
from transforms.functional.values import has_surrogates

UNMATCHED = "annotations without a picture"

_OF_PICTURES = ("image", "id", "height", "width")
_OF_OBJECTS = (*CORNERS, "box_units", "labels", "is_crowd", "area", "segmentation")
_SPOOLS = 64
_SPOOL_BYTES = 2**18
_DAMAGE = (ijson.JSONError, EOFError, OSError, zlib.error, UnicodeError)


def look(stream: BinaryIO, file: TableFile) -> Head:
    """Returns the columns that the first annotation gives.

    Raises:
        UsageError: if the file is no COCO, or of its panoptic kind.
    """
    try:
        pictures = list(islice(_items(stream, "images"), 1))
        first: Any = next(_items(stream, "annotations"), None)
    except _DAMAGE as error:
        raise UsageError(f"{file.path}: is no JSON document: {_said(error)}") from error
    if not pictures:
        raise UsageError(
            f"{file.path}: is no COCO file, it has no 'images'; for one JSON object a line "
            "say --input_format jsonl"
        )
    if isinstance(first, dict) and "segments_info" in first:
        raise UsageError(
            f"{file.path}: holds COCO's panoptic annotations, whose masks are in PNG files "
            "of their own; expected instances or captions"
        )
    columns = [*_OF_PICTURES]
    if isinstance(first, dict):
        columns += [*_OF_OBJECTS] if "bbox" in first else []
        columns += ["caption"] if "caption" in first else []
    return Head(tuple(columns), has_rows=True)


def read(stream: BinaryIO, part: TablePart, wanted: Wanted) -> Iterator[Row | Reject | Aside]:
    """Yields a row for each picture; of damaged JSON nothing but its reject."""
    path = part.file.path
    try:
        categories = _categories(stream)
        with ExitStack() as stack:
            spools = [
                stack.enter_context(tempfile.SpooledTemporaryFile(_SPOOL_BYTES, "w+", newline=""))
                for _ in range(_SPOOLS)
            ]
            yield from _spool(stream, path, spools, wanted)
            for spool in spools:
                for found in _pictures(spool):
                    yield from _rows(found, path, categories, wanted)
    except _DAMAGE as error:
        detail = f"the JSON document cannot be read: {_said(error)}"
        yield Reject("", "", path, Reason.MALFORMED_ROW, detail)


def _said(error: Exception) -> str:
    """Returns the first line of what an error says: below it, the parser draws where it was."""
    return str(error).partition("\n")[0].strip()


@dataclass
class _Picture:
    """What was found for one image id.

    Attributes:
        entries: (number, the entry in `images`); more than one if the id stands twice.
        annotations: (number, the entry in `annotations`).
    """

    entries: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    annotations: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def _items(stream: BinaryIO, name: str) -> Iterator[Any]:
    stream.seek(0)
    return iter(ijson.items(stream, f"{name}.item", use_float=True))


def _categories(stream: BinaryIO) -> dict[str, str]:
    """Returns category id, as JSON, to name."""
    return {
        json.dumps(entry.get("id")): entry["name"]
        for entry in _items(stream, "categories")
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }


def _spool(stream: BinaryIO, path: str, spools: list[Any], wanted: Wanted) -> Iterator[Reject]:
    """Puts every picture and annotation into the spool of its picture's id."""
    for kind, id_name in (("images", "id"), ("annotations", "image_id")):
        for number, entry in enumerate(_items(stream, kind), start=1):
            if not isinstance(entry, dict) or not isinstance(entry.get(id_name), int | str):
                detail = f"{kind}, number {number}: expected an object with {id_name!r}"
                yield Reject("", "", path, Reason.MALFORMED_ROW, detail)
                continue
            if wanted.columns is not None and "segmentation" not in wanted.columns:
                entry.pop("segmentation", None)
            key = json.dumps(entry[id_name])
            spool = spools[zlib.crc32(key.encode()) % len(spools)]
            spool.write(json.dumps([key, kind, number, entry]) + "\n")


def _pictures(spool: IO[str]) -> Iterator[_Picture]:
    spool.seek(0)
    found: dict[str, _Picture] = {}
    for line in spool:
        key, kind, number, entry = json.loads(line)
        picture = found.setdefault(key, _Picture())
        (picture.entries if kind == "images" else picture.annotations).append((number, entry))
    return iter(found.values())


def _rows(
    found: _Picture, path: str, categories: dict[str, str], wanted: Wanted
) -> Iterator[Row | Reject | Aside]:
    if not found.entries:
        yield Aside(UNMATCHED, len(found.annotations))
        return
    (line, entry), *others = found.entries
    try:
        yield Row(wanted.of(_values(entry, found.annotations, categories)), path, line)
    except RecordError as error:
        yield Reject("", "", f"{path}:{line}", error.reason, error.detail)
    for number, _ in others:
        detail = f"the image id {entry['id']!r} stands in number {line}, too"
        yield Reject.of_malformed_row(path, number, detail)


def _values(
    entry: dict[str, Any],
    annotations: list[tuple[int, dict[str, Any]]],
    categories: dict[str, str],
) -> dict[str, Any]:
    name = entry.get("file_name")
    if not isinstance(name, str) or not name or has_surrogates(name):
        raise RecordError(Reason.MALFORMED_ROW, f"file_name: expected text, got {name!r}")
    objects = [(number, a) for number, a in annotations if "bbox" in a or "category_id" in a]
    captions = [a["caption"] for _, a in annotations if "caption" in a]
    values = {
        "image": name,
        "id": str(entry["id"]),
        "height": entry.get("height"),
        "width": entry.get("width"),
        **corners([_box(number, a) for number, a in objects], PIXEL),
        "labels": [_name(number, a, categories) for number, a in objects],
        "is_crowd": [a.get("iscrowd", 0) for _, a in objects],
        "caption": captions,
    }
    for column in ("area", "segmentation"):
        if all(column in a for _, a in objects):
            values[column] = [a[column] for _, a in objects]
    return values


def _box(number: int, annotation: dict[str, Any]) -> Box:
    """Returns the box of an annotation, which is written as x, y, width and height."""
    box = annotation.get("bbox")
    if not isinstance(box, list) or len(box) != 4:
        detail = f"annotation {number}: bbox: expected four numbers, got {repr(box)[:80]}"
        raise RecordError(Reason.BAD_BOX, detail)
    x, y, width, height = (number_of(value, f"annotation {number}: bbox") for value in box)
    return Box(x, y, x + width, y + height)


def _name(number: int, annotation: dict[str, Any], categories: dict[str, str]) -> str:
    category = annotation.get("category_id")
    name = categories.get(json.dumps(category))
    if name is None:
        detail = f"annotation {number}: category_id {category!r} is none of the categories"
        raise RecordError(Reason.UNKNOWN_LABEL, detail)
    return name
