"""Prints records: their features, some of them as a table, one of them in full."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.inspect.record_files import FoundRecord
from pipelines.report.charts import size_text
from schemas.rejects import RecordError
from transforms.functional.pictures.source_image import examine
from transforms.functional.records.inferred_features import bytes_kind, infer_features
from transforms.functional.showing.drawing import is_picture, raw_shape
from transforms.functional.showing.visible_text import text_of, visible

ClassNames = Mapping[str, Sequence[str]]
"""Feature to the names of its class ids."""

_CELL_CHARACTERS = 32
_CELL_VALUES = 4
_COLUMN_WIDTH = 18
_HEX_BYTES = 32


def show_features(console: Console, records: Sequence[FoundRecord]) -> None:
    """Prints which features the records have."""
    table = Table("feature", "kind", "values", "holds", box=None, pad_edge=False)
    for feature in infer_features([r.features for r in records if r.features is not None]):
        low, high = feature.lengths
        lengths = str(low) if low == high else f"{low} to {high}"
        table.add_row(*_plain(feature.name, feature.kind, lengths, feature.holds))
    console.print(table)


def show_records(console: Console, records: Sequence[FoundRecord], names: ClassNames) -> None:
    """Prints a row a record, as many of its features as the terminal has room for."""
    keyed = any(record.key for record in records)
    features = sorted({name for record in records for name in record.features or {}})
    room = max(1, (console.width - 6 - 2 * _COLUMN_WIDTH * keyed) // _COLUMN_WIDTH)
    shown = features[:room]
    heads = ("#", *(("split", "key") if keyed else ()), *map(visible, shown))
    table = Table(*heads, box=None, pad_edge=False)
    for record in records:
        about = (record.split, visible(record.key)) if keyed else ()
        table.add_row(*_plain(str(record.number), *about, *_cells(record, shown, names)))
    console.print(table)
    if left_out := features[room:]:
        text = f"and {len(left_out)} more: {', '.join(map(visible, left_out))}; see --record N"
        console.print(Text(text), soft_wrap=True)


def _cells(record: FoundRecord, names: Sequence[str], classes: ClassNames) -> list[str]:
    if record.features is None:
        return [f"no tf.train.Example: {len(record.data):,} bytes"][: len(names) or 1]
    return [_cell(record.features, name, classes.get(name, ())) for name in names]


def _cell(features: Mapping[str, list[Any]], name: str, classes: Sequence[str]) -> str:
    values = features.get(name, [])
    if len(values) == 1 and isinstance(values[0], bytes) and raw_shape(features, name):
        return f"pixels {size_text(len(values[0]))}"
    shown = ", ".join(short(value, classes) for value in values[:_CELL_VALUES])
    more = f" … {len(values):,} values" if len(values) > _CELL_VALUES else ""
    return (shown or "-") + more


def short(value: Any, classes: Sequence[str] = ()) -> str:
    """Returns a value in a few characters.

    >>> short(1, ["cat", "dog"]), short(0.1), short(b"x" * 99)[-1]
    ('1 dog', '0.1', '…')
    """
    if isinstance(value, int):
        return f"{value} {visible(classes[value])}" if 0 <= value < len(classes) else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if is_picture(value):
        return picture_in_words(value)
    text = text_of(value)
    if text is None:
        return f"{len(value):,} bytes"
    return visible(text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…")


def picture_in_words(value: bytes) -> str:
    """Returns format, size in pixels and size in bytes of an encoded picture."""
    try:
        source = examine(value)
    except RecordError as error:
        return f"damaged image ({error.reason.value}), {size_text(len(value))}"
    return f"{source.format.upper()} {source.width}×{source.height} {size_text(len(value))}"


def show_whole(console: Console, record: FoundRecord, names: ClassNames) -> None:
    """Prints one record, every value of every feature."""
    about = f"{record.file}: record {record.number} at byte {record.offset:,}"
    console.print(Text(f"{about}, {len(record.data):,} bytes"), soft_wrap=True)
    if record.key:
        console.print(Text(f"key {visible(record.key)}, split {record.split}"), soft_wrap=True)
    if record.features is None:
        console.print(Text(f"no tf.train.Example: {_hex(record.data)}"), soft_wrap=True)
        return
    for name, values in record.features.items():
        heading = f"\n{visible(name)}"
        console.print(Text(heading, style="bold"), Text(_kind(values)), soft_wrap=True)
        for value in values:
            console.print(Text(f"  {_whole(value, names.get(name, ()))}"), soft_wrap=True)


def _kind(values: Sequence[Any]) -> str:
    if not values:
        return "empty"
    kinds = {bytes: "bytes", float: "float", int: "int64"}
    count = f", {len(values):,} values" if len(values) > 1 else ""
    return kinds[type(values[0])] + count


def _whole(value: Any, classes: Sequence[str]) -> str:
    if not isinstance(value, bytes):
        return short(value, classes) if isinstance(value, int) else str(np.float32(value))
    text = None if is_picture(value) else text_of(value)
    if text is not None:
        return visible(text)
    what = picture_in_words(value) if is_picture(value) else bytes_kind(value)
    return (
        f"{what}, {len(value):,} bytes, sha256 {hashlib.sha256(value).hexdigest()}: {_hex(value)}"
    )


def _hex(value: bytes) -> str:
    return value[:_HEX_BYTES].hex(" ") + (" …" if len(value) > _HEX_BYTES else "")


def _plain(*cells: str) -> list[Text]:
    """Returns cells that rich takes for no markup."""
    return [Text(cell) for cell in cells]
