"""Draws records on a contact sheet, with their labels, boxes and masks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines.inspect.record_files import FoundRecord
from recordmill.pipelines.inspect.tables import ClassNames
from recordmill.schemas.errors import UsageError
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering.contact_sheet import TILE_SIDE, Tile, contact_sheet
from recordmill.transforms.functional.rendering.drawing import (
    BOX_LABEL_KEY,
    draw_record,
    fault_of,
    image_key,
)
from recordmill.transforms.functional.rendering.visible_text import text_of
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.workers.sandbox import run_apart

_LABELS = (
    "image/class/text",
    "image/class/label",
    "label",
    "labels",
    "class",
    "landmark_id",
    "image/caption",
    "image/object/class/text",
)
_KEYS = ("image/filename", "image/source_id", "filename", "id", "image/key/sha256")
_SHOWN_LABELS = 4
_SECONDS = 10.0
"""For one image: whose it is, nobody knows, and it is decoded in a separate process."""


def write_sheet(path: str, records: Sequence[FoundRecord], names: ClassNames) -> None:
    """Writes a contact sheet as PNG.

    Raises:
        UsageError: if no record holds an image, or the file cannot be written.
    """
    if not any(image_key(_shown(record)) for record in records):
        raise UsageError(f"--sheet {path}: none of the {len(records)} records holds an image")
    png = io.BytesIO()
    contact_sheet([tile_of(record, names) for record in records]).save(png, "PNG")
    try:
        write_bytes(path, png.getvalue())
    except OSError as error:
        raise UsageError(f"--sheet {path}: cannot be written: {error.strerror or error}") from error


def tile_of(record: FoundRecord, names: ClassNames) -> Tile:
    """Returns a record's image and its captions; in place of a damaged one, why."""
    features = _shown(record)
    title, key = label_of(features, names), record.key or _key_of(features, record.number)
    try:
        classes = tuple(names.get(BOX_LABEL_KEY, ()))
        image = run_apart(draw_record, features, TILE_SIDE, classes, timeout=_SECONDS)
    except (RecordError, ValueError) as error:
        return Tile(None, title, key, fault_of(error))
    return Tile(image, title, key)


def _shown(record: FoundRecord) -> dict[str, list[Any]]:
    """Returns what is drawn of a record: of a sequence, its first frame."""
    return {} if record.features is None else read_first_frame(record.data)


def label_of(features: Mapping[str, list[Any]], names: ClassNames) -> str:
    """Returns a record's label in words: of the features that say what is to be seen, the first."""
    for feature in (*_LABELS, *names):
        if values := features.get(feature):
            distinct = list(dict.fromkeys(_word(v, names.get(feature, ())) for v in values))
            more = " …" if len(distinct) > _SHOWN_LABELS else ""
            return ", ".join(distinct[:_SHOWN_LABELS]) + more
    return ""


def _word(value: Any, classes: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return text_of(value) or f"{len(value)} bytes"
    if isinstance(value, int) and 0 <= value < len(classes):
        return classes[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _key_of(features: Mapping[str, list[Any]], number: int) -> str:
    texts = (next(iter(features.get(name, [])), None) for name in _KEYS)
    found = next((text_of(t) for t in texts if isinstance(t, bytes)), None)
    return found or f"record {number}"
