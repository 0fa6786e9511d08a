"""`recordmill inspect`: shows records, and draws contact sheets."""

from __future__ import annotations

import argparse
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recordmill.pipelines.console.terminal import Terminal, outcome, say_json
from recordmill.pipelines.options import load_schema
from recordmill.pipelines.parser import RECORDS, TILES
from recordmill.pipelines.record_files import FoundRecord, RecordSource
from recordmill.pipelines.report.statistics import size_text
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import counted, some
from recordmill.schemas.records import FrameValues
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.compare import json_value
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering import drawing
from recordmill.transforms.functional.rendering.infer_features import (
    bytes_kind,
    decode_text,
    image_key,
    infer_features,
    is_image,
    raw_shape,
)
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.workers.sandbox import examine_in_subprocess, run_in_subprocess


def run(flags: argparse.Namespace) -> int:
    """Shows records, and returns the exit code."""
    _inspect(Terminal(), flags)
    return 0


def _inspect(terminal: Terminal, flags: argparse.Namespace) -> None:
    for flag, value, least in (("-n", flags.n, 1), ("--record", flags.record, 0)):
        if value is not None and value < least:
            raise UsageError(f"{flag} {value}: expected {least} or more")
    schema = load_schema(flags.schema) if flags.schema else None
    source = RecordSource.of(flags.paths)
    names = source.dataset.classes if source.dataset else {}
    declared = source.dataset.manifest.dataset_schema if source.dataset else None
    records, damage = _chosen(source, flags)
    if flags.sheet and records:
        _write_contact_sheet(flags.sheet, records, names, schema or declared)
    if flags.json and not damage:
        say_json(_document(source, records))
        return
    if flags.sheet and records:
        terminal.line(f"drew {flags.sheet}: {counted(len(records), 'record')}")
    elif records or not damage:
        is_single = flags.record is not None or flags.key is not None
        _show(terminal, source, records, names, whole=is_single)
    if damage:
        raise damage


def _document(source: RecordSource, records: Sequence[FoundRecord]) -> dict[str, Any]:
    manifest = source.dataset.manifest if source.dataset else None
    return {
        **outcome(),
        "directory": source.dataset.directory if source.dataset else None,
        "splits": {n: s.records for n, s in manifest.ordered_splits.items()} if manifest else None,
        "files": len(source.files),
        "records": [_record(record) for record in records],
    }


def _record(record: FoundRecord) -> dict[str, Any]:
    features = (record.features or {}).items()
    return {
        "file": record.file,
        "record": record.number,
        "offset": record.offset,
        "key": record.key,
        "split": record.split,
        "features": {name: json_value(values) for name, values in features},
    }


def _chosen(
    source: RecordSource, flags: argparse.Namespace
) -> tuple[list[FoundRecord], VerificationFailed | None]:
    """Returns the records to show, and the damage that ended the reading, if any."""
    if flags.record is not None:
        return [source.by_number(flags.record)], None
    if flags.key is not None:
        return [source.by_key(flags.key)], None
    default = TILES if flags.sheet else RECORDS
    records: list[FoundRecord] = []
    try:
        for record in source.first(default if flags.n is None else flags.n):
            records.append(record)  # one by one, to keep the records before the damage
    except VerificationFailed as damage:
        return records, damage
    return records, None


def _show(
    terminal: Terminal,
    source: RecordSource,
    records: Sequence[FoundRecord],
    names: ClassNames,
    whole: bool,
) -> None:
    if whole:
        _print_record(terminal, records[0], names)
        return
    terminal.line(_headline(source, records))
    if records:
        terminal.line()
        _print_features(terminal, records)
        terminal.line()
        _print_records(terminal, records, names)


def _headline(source: RecordSource, records: Sequence[FoundRecord]) -> str:
    files = counted(len(source.files), "file")
    if source.dataset is None:
        first = f"the first {counted(len(records), 'record')}" if records else "no records"
        return f"{files}, {first}"
    manifest = source.dataset.manifest
    number = counted(manifest.input.records, "record")
    about = f"{manifest.name} {manifest.version}: {number} in {files}"
    return f"{about}, schema {manifest.dataset_schema.name}"


# The class names by feature, in the order of their ids.
ClassNames = Mapping[str, Sequence[str]]

# Limits of a table cell, and of a hex dump.
_CELL_CHARACTERS = 32
_CELL_VALUES = 4
_COLUMN_WIDTH = 18
_HEX_BYTES = 32

# Features that are listed, and named: laying out a table takes a millisecond per row.
_MOST_FEATURES, _MOST_NAMES = 1_000, 100


def _print_features(terminal: Terminal, records: Sequence[FoundRecord]) -> None:
    rows = []
    found = infer_features([r.features for r in records if r.features is not None])
    for feature in found[:_MOST_FEATURES]:
        rows.append((feature.name, feature.kind, feature.lengths, feature.holds))
    terminal.table(("feature", "kind", "values", "holds"), rows, pad_edge=False)
    if len(found) > _MOST_FEATURES:
        more = counted(len(found) - _MOST_FEATURES, "more feature")
        terminal.line(f"and {more}; see --record N")


def _print_records(terminal: Terminal, records: Sequence[FoundRecord], names: ClassNames) -> None:
    """Prints one row per record, with as many features as fit the width of the terminal."""
    keyed = any(record.key for record in records)
    found = [record.features or {} for record in records]
    features = sorted({name for one in found for name in one}, key=lambda n: _rank(n, found, names))
    # The record number takes 6 characters; split, key and every feature take one column.
    room = max(1, (terminal.width - 6 - 2 * _COLUMN_WIDTH * keyed) // _COLUMN_WIDTH)
    shown = features[:room]
    heads = ("#", *(("split", "key") if keyed else ()), *shown)
    rows = []
    for record in records:
        columns = (record.split, record.key) if keyed else ()
        rows.append((str(record.number), *columns, *_cells(record, shown, names)))
    terminal.table(heads, rows, pad_edge=False)
    if left_out := features[room:]:
        listed = some(left_out, shown=_MOST_NAMES)
        terminal.line(f"and {len(left_out)} more: {listed}; see --record N")


def _rank(
    name: str, records: Sequence[Mapping[str, list[Any]]], names: ClassNames
) -> tuple[bool, bool, str]:
    """Returns the sort key of a feature's column: labels first, features without values last."""
    is_label = name in names or name.rpartition("/")[2] in ("label", "labels")
    return not any(record.get(name) for record in records), not is_label, name


def _cells(record: FoundRecord, names: Sequence[str], classes: ClassNames) -> list[str]:
    if record.features is None:
        return [f"not a tf.train.Example: {len(record.data):,} bytes"][: len(names) or 1]
    return [_cell(record.features, name, classes.get(name, ())) for name in names]


def _cell(features: Mapping[str, list[Any]], name: str, classes: Sequence[str]) -> str:
    values = features.get(name, [])
    if len(values) == 1 and isinstance(values[0], bytes) and raw_shape(features, name):
        return f"pixels {size_text(len(values[0]))}"
    shown = ", ".join(_short(value, classes) for value in values[:_CELL_VALUES])
    more = f" … {len(values):,} values" if len(values) > _CELL_VALUES else ""
    return (shown or "-") + more


def _short(value: Any, classes: Sequence[str] = ()) -> str:
    """Returns a value as a short text.

    >>> _short(1, ["cat", "dog"]), _short(0.1), _short(b"x" * 99)[-1]
    ('1 dog', '0.1', '…')
    """
    if isinstance(value, int):
        return f"{value} {classes[value]}" if 0 <= value < len(classes) else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if is_image(value):
        return _describe_image(value)
    text = decode_text(value)
    if text is None:
        return f"{len(value):,} bytes"
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"


def _describe_image(value: bytes) -> str:
    """Returns the format, the size in pixels and the size in bytes of an encoded image."""
    try:
        source = examine_in_subprocess(value)
    except RecordError as error:
        return f"damaged image ({error.reason.value}), {size_text(len(value))}"
    return f"{source.format.upper()} {source.width}×{source.height} {size_text(len(value))}"


def _print_record(terminal: Terminal, record: FoundRecord, names: ClassNames) -> None:
    location = f"{record.file}: record {record.number} at byte {record.offset:,}"
    terminal.line(f"{location}, {len(record.data):,} bytes")
    if record.key:
        terminal.line(f"key {record.key}, split {record.split}")
    if record.features is None:
        terminal.line(f"not a tf.train.Example: {_hex(record.data)}")
        return
    for name, values in record.features.items():
        terminal.line()
        terminal.heading(name, _kind(values))
        terminal.lines(f"  {_whole(value, names.get(name, ()))}" for value in values)


def _kind(values: Sequence[Any]) -> str:
    if not values:
        return "empty"
    kinds = {bytes: "bytes", float: "float", int: "int64"}
    count = f", {len(values):,} values" if len(values) > 1 else ""
    frames = f" in {counted(values.frames, 'frame')}" if isinstance(values, FrameValues) else ""
    return kinds[type(values[0])] + count + frames


def _whole(value: Any, classes: Sequence[str]) -> str:
    if not isinstance(value, bytes):
        return _short(value, classes) if isinstance(value, int) else str(np.float32(value))
    # Before decoding text: the bytes of an image can be valid UTF-8 by coincidence.
    text = None if is_image(value) else decode_text(value)
    if text is not None:
        return text
    description = _describe_image(value) if is_image(value) else bytes_kind(value)
    digest = hashlib.sha256(value).hexdigest()
    return f"{description}, {len(value):,} bytes, sha256 {digest}: {_hex(value)}"


def _hex(value: bytes) -> str:
    return value[:_HEX_BYTES].hex(" ") + (" …" if len(value) > _HEX_BYTES else "")


# Label keys of well-known datasets: TF-Slim, the Object Detection API, TFDS, Google Landmarks.
_LABELS = (
    "image/class/text", "image/class/label", "label", "labels", "class", "landmark_id",
    "image/caption", "image/object/class/text",
)  # fmt: skip
_KEYS = ("image/filename", "image/source_id", "filename", "id", "image/key/sha256")
_SHOWN_LABELS = 4

# Time limit per image in the sandbox, which decodes images of unknown origin.
_SECONDS = 10.0


def _write_contact_sheet(
    path: str, records: Sequence[FoundRecord], names: ClassNames, schema: Schema | None = None
) -> None:
    """Writes a contact sheet as PNG, with the boxes and masks that the schema declares.

    Without a schema, those in the keys of well-known datasets are drawn.
    """
    # Checked before anything is drawn or written.
    if not any(image_key(_shown(record, schema)) for record in records):
        raise UsageError(f"--sheet {path}: none of the {len(records)} records has an image")
    png = io.BytesIO()
    drawing.contact_sheet([_make_tile(record, names, schema) for record in records]).save(
        png, "PNG"
    )
    try:
        write_bytes(path, png.getvalue())
    except OSError as error:
        raise UsageError(f"--sheet {path}: cannot be written: {error.strerror or error}") from error


def _make_tile(record: FoundRecord, names: ClassNames, schema: Schema | None) -> drawing.Tile:
    """Draws the tile of a record: its image and captions, or the error if it cannot be decoded."""
    features = _shown(record, schema)
    title = _label_text(features, names)
    key = record.key or _key_of(features, record.number)
    try:
        classes = tuple(
            names.get((schema and drawing.box_label_of(schema)) or drawing.BOX_LABEL_KEY, ())
        )
        drawn = drawing.with_drawn_keys(schema, features) if schema else features
        image = run_in_subprocess(
            drawing.draw_record, drawn, drawing.TILE_SIDE, classes, timeout=_SECONDS
        )
    except (RecordError, ValueError) as error:
        return drawing.Tile(None, title, key, drawing.error_detail(error))
    return drawing.Tile(image, title, key)


def _shown(record: FoundRecord, schema: Schema | None) -> dict[str, list[Any]]:
    """Returns the features to draw; for a sequence, those of its first frame."""
    found = {} if record.features is None else read_first_frame(record.data)
    return drawing.of_first_step(schema, found) if schema else found


def _label_text(features: Mapping[str, list[Any]], names: ClassNames) -> str:
    """Returns the values of the first feature that is a label, as text."""
    # Well-known label features take precedence over other features with class names.
    for feature in (*_LABELS, *names):
        if values := features.get(feature):
            distinct = list(dict.fromkeys(_word(v, names.get(feature, ())) for v in values))
            more = " …" if len(distinct) > _SHOWN_LABELS else ""
            return ", ".join(distinct[:_SHOWN_LABELS]) + more
    return ""


def _word(value: Any, classes: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return decode_text(value) or f"{len(value)} bytes"
    if isinstance(value, int) and 0 <= value < len(classes):
        return classes[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _key_of(features: Mapping[str, list[Any]], number: int) -> str:
    texts = (next(iter(features.get(name, [])), None) for name in _KEYS)
    found = next((decode_text(t) for t in texts if isinstance(t, bytes)), None)
    return found or f"record {number}"
