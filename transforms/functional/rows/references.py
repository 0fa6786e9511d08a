"""Rows as image references: where the image is, and the typed values of all other features."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from recordmill.schemas.features import Feature, Missing, Origin, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef, Row, RowBoxes, RowOutlines
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import AnnotationSettings, BoxSettings
from recordmill.transforms.functional.images.masks import checked_outlines
from recordmill.transforms.functional.rows.batches import RefBatch, RowBatch, once
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.identities import (
    broken_identity,
    identities_of,
    reject_row,
    single_cell,
    text_cell,
)
from recordmill.transforms.functional.rows.image_paths import resolve_path
from recordmill.transforms.functional.rows.labels import class_id
from recordmill.transforms.functional.values.boxes import PIXEL, TO_CORNERS, UNITS, Box, box_of
from recordmill.transforms.functional.values.typed import (
    is_missing,
    items_of,
    short_repr,
    single_value,
    to_bytes,
    to_number,
)

_SEPARATOR = re.compile(r"[,\s]+")


def _read_boxes(
    row: Row, settings: BoxSettings, columns: Mapping[str, str], feature: Feature
) -> RowBoxes:
    """Reads the boxes of a row as xmin, ymin, xmax and ymax in the units of the row.

    `settings` is the resolved box settings, with either one column or four. `columns` is the table
    column of each schema column whose name differs. `feature` is a feature from boxes, whose
    `missing` and `separator` apply to the columns. Raises RecordError (missing_value) or
    wrong_type. Boxes outside the image are detected when the image is read.
    """
    names = settings.columns or (settings.column or "",)
    used = [columns.get(name, name) for name in names]
    # Four columns with one list of numbers each, or one column with a list of four numbers per box.
    lists = [_box_items(row, column, feature) for column in used]
    items: list[Any] = _zipped(lists, used) if settings.columns else lists[0]
    corners, drops_invalid = TO_CORNERS[settings.order], settings.invalid == "drop"
    is_text = any(row.untyped(column) for column in used)
    read = partial(_four_numbers, column=None if settings.columns else used[0], is_text=is_text)
    fours = [box_of(partial(read, i, item), drops_invalid) for i, item in enumerate(items)]
    return RowBoxes(
        units_of(row, settings, columns) or PIXEL,
        [x for four in fours for x in corners(*four)],
        stated_size(row, settings, columns),
    )


def _box_items(row: Row, column: str, feature: Feature) -> list[Any]:
    value, is_text = row.values.get(column), row.untyped(column)
    if is_missing(value, feature, is_text):
        if feature.missing is Missing.EMPTY:
            return []
        detail = f"column {column!r}: empty; expected a list, which may be empty: []"
        raise RecordError(Reason.MISSING_VALUE, detail)
    try:
        return items_of(value, feature, is_text)
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _zipped(lists: list[list[Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    """Transposes four lists of numbers to one tuple of four per box."""
    counts = [len(items) for items in lists]
    if len(set(counts)) > 1:
        found = ", ".join(f"{n} in {column!r}" for n, column in zip(counts, columns, strict=True))
        detail = f"expected the same number of items in each column, got {found}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return list(zip(*lists, strict=True))


def _four_numbers(index: int, item: Any, column: str | None, is_text: bool) -> Box:
    four = _SEPARATOR.split(item.strip()) if is_text and isinstance(item, str) else item
    if not isinstance(four, list | tuple) or len(four) != 4:
        detail = f"column {column!r}: box {index}: expected a list of 4 numbers, got {item!r}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    try:
        one, two, three, four_ = (to_number(value, is_text) for value in four)
    except RecordError as error:
        raise RecordError(error.reason, f"box {index}: {error.detail}") from None
    return one, two, three, four_


def units_of(row: Row, settings: AnnotationSettings, columns: Mapping[str, str]) -> str | None:
    """Returns the units that a row states, or else those of the settings; None if neither does."""
    if settings.units_column is None:
        return settings.units
    column = _column(settings.units_column, columns)
    units = single_value(row.values.get(column))
    if units is None or units == "":
        return settings.units
    if units not in UNITS:
        detail = f"column {column!r}: expected one of {', '.join(UNITS)}, got {units!r}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    return str(units)


def stated_size(
    row: Row, settings: AnnotationSettings, columns: Mapping[str, str]
) -> tuple[float, float] | None:
    """Returns the width and height of the annotated image; None if a row does not state both."""
    if settings.size_columns is None:
        return None
    width, height = (_stated_side(row, _column(name, columns)) for name in settings.size_columns)
    return (width, height) if width > 0 and height > 0 else None


def _stated_side(row: Row, column: str) -> float:
    """Returns a side in pixels, which tables with a row per box repeat; 0 if none is stated."""
    value = row.values.get(column)
    if isinstance(value, list | tuple):
        value = value[0] if value and value.count(value[0]) == len(value) else None
    if value is None or value == "":
        return 0
    try:
        side = to_number(value, row.untyped(column) or isinstance(value, str))
    except RecordError:  # such as "unknown", or the widths of boxes
        return 0
    return side if math.isfinite(side) else 0


def coordinates_of(
    row: Row, block: str, schema: Schema, columns: Mapping[str, str]
) -> list[list[float]]:
    """Returns the coordinates of each box, for "boxes", or of each polygon, for "masks"."""
    if block == "boxes":
        corners = _read_boxes(row, schema.boxes, columns, _box_feature(schema)).corners
        return [corners[i : i + 4] for i in range(0, len(corners), 4)]
    mask = schema.features[schema.mask_feature or ""]
    outlines = checked_outlines(_items(row, _column(mask.source.name, columns)))
    return [polygon for outline in outlines if isinstance(outline, list) for polygon in outline]


def _box_feature(schema: Schema) -> Feature:
    """Returns a feature from boxes, whose `missing` and `separator` apply to their columns."""
    return next(f for f in schema.features.values() if f.source.origin is Origin.BOX)


def _with_annotations(
    ref: ImageRef,
    row: Row,
    resolved: ResolvedSchema,
    columns: Mapping[str, str],
    resolve: Callable[[str], str],
) -> ImageRef:
    """Adds the boxes of a row, and the address or the outlines of its mask, to its reference.

    Raises RecordError if a value is missing or of the wrong type, or a list of the wrong length.
    """
    schema = resolved.schema
    if schema.has_boxes:
        boxes = _read_boxes(row, schema.boxes, columns, _box_feature(schema))
        _check_lengths(schema, ref, columns, len(boxes.corners) // 4)
        ref = ref._replace(boxes=(boxes.units, boxes.corners, boxes.size))
    if schema.mask_feature is not None:
        mask = schema.features[schema.mask_feature]
        # The mask is an image file, or is drawn from outlines.
        if mask.source.origin is Origin.MASK:
            return ref._replace(
                mask_uri=_mask_uri(row, _column(mask.source.name, columns), resolve)
            )
        found = _outlines(row, mask, resolved, columns)
        return ref._replace(outlines=(found.units, found.objects, found.size))
    return ref


def _check_lengths(schema: Schema, ref: ImageRef, columns: Mapping[str, str], number: int) -> None:
    """Checks that lists of box features have one item per box; a missing value may be empty.

    Raises RecordError (wrong_type) for a list of another length.
    """
    for feature, values in zip(schema.features.values(), ref.values, strict=True):
        if not isinstance(values, list) or not feature.of_boxes or len(values) == number:
            continue
        if values or feature.missing is not Missing.EMPTY:
            column = _column(feature.source.name, columns)
            what = f"expected {number} items, one per box, got {len(values)}"
            detail = f"column {column!r}: {what}"
            raise RecordError(Reason.WRONG_TYPE, detail)


def _mask_uri(row: Row, column: str, resolve: Callable[[str], str]) -> str:
    value = single_value(row.values.get(column))
    if value is None or value == "":
        detail = f"column {column!r}: empty; expected the path of a mask"
        raise RecordError(Reason.MISSING_VALUE, detail)
    if not isinstance(value, str):
        detail = f"column {column!r}: expected a path, got {short_repr(value)}"
        raise RecordError(Reason.WRONG_TYPE, detail)
    to_bytes(value, is_text=True)
    return resolve(value)


def _outlines(
    row: Row, mask: Feature, resolved: ResolvedSchema, columns: Mapping[str, str]
) -> RowOutlines:
    """Returns the class id and the outline of each object, in drawing order."""
    settings = resolved.schema.masks
    name = resolved.schema.mask_feature or ""
    ids = resolved.class_ids.get(name)
    labels_column = _column(settings.labels, columns)
    outlines_column = _column(mask.source.name, columns)
    labels = _items(row, labels_column)
    outlines = _items(row, outlines_column)
    if len(labels) != len(outlines):
        detail = f"expected {len(outlines)} items, one per outline, got {len(labels)}"
        raise RecordError(Reason.WRONG_TYPE, f"column {labels_column!r}: {detail}")
    try:
        is_text = row.untyped(labels_column)
        classes = [class_id(label, is_text, ids, mask.label_offset) for label in labels]
    except RecordError as error:
        raise RecordError(error.reason, f"column {labels_column!r}: {error.detail}") from None
    # [(class id, outline)], drawn in this order: later objects cover earlier ones.
    try:
        objects = list(zip(classes, checked_outlines(outlines), strict=True))
    except RecordError as error:
        raise RecordError(error.reason, f"column {outlines_column!r}: {error.detail}") from None
    units = units_of(row, settings, columns) or PIXEL
    return RowOutlines(units, objects, stated_size(row, settings, columns))


def _items(row: Row, column: str) -> list[Any]:
    value = row.values.get(column)
    if value is None:
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected a list")
    try:
        return items_of(value, _ANY_LIST, row.untyped(column))
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None


def _column(name: str, columns: Mapping[str, str]) -> str:
    return columns.get(name, name)


_ANY_LIST = Feature.model_validate({"kind": "bytes", "from": "column:any", "shape": []})


_T = TypeVar("_T")


def by_halves(
    function: Callable[[RowBatch, Binding], _T], rows: RowBatch, binding: Binding
) -> Iterator[tuple[RowBatch, _T | RecordError]]:
    """Yields the result of a function for all rows, or if it fails, for halves of them.

    So a function can work on columns in tight loops, and a row that it rejects is still found: the
    error of a single row is yielded in place of its result. `function`: takes rows and the column
    mapping, and raises a RecordError if a row is invalid.
    """
    try:
        found: _T | RecordError = function(rows, binding)
    except RecordError as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from by_halves(function, rows[:middle], binding)
            yield from by_halves(function, rows[middle:], binding)
            return
        # The traceback refers to this frame, and thus to itself: a cycle that keeps the row.
        found = error.with_traceback(None)
    yield rows, found


def bind(row: Row, binding: Binding) -> ImageRef:
    """Returns the image reference of a single row.

    Raises RecordError (as) `bind_rows` does.
    """
    return bind_rows([row], binding)[0]


def bind_rows(rows: Sequence[Row], binding: Binding) -> RefBatch:
    """Returns the image references of rows.

    Raises RecordError if a value is missing, of the wrong type, or an unknown label or split.
    """
    rows = RowBatch.of(rows)
    found = identities_of(rows, binding)
    # [values of a feature] is transposed to one tuple of values per row.
    keys, uris, splits, groups, starts, stops, _, staged, clusters = found.columns
    columns = [read(rows, keys, found.records) for read in binding.readers]
    # In the order of the fields of `ImageRef`; annotations are added below.
    refs = RefBatch(
        (
            *(keys, once(rows.files), rows.lines, uris, starts, stops),
            zip(*columns, strict=True) if columns else repeat((), len(rows)),
            *(splits, groups, (None,), ("",), (None,)),
            *(_frames(rows, binding, found.column("sequence")), staged, clusters),
        )
    )
    if not binding.has_annotations:
        return refs
    return RefBatch.of(
        _with_annotations(
            ref,
            row,
            binding.resolved,
            binding.columns,
            partial(_resolve_mask, table=row.file, binding=binding),
        )
        for ref, row in zip(refs, rows, strict=True)
    )


def broken_frame(row: Row, binding: Binding, error: RecordError) -> ImageRef | None:
    """Returns a reference that marks the sequence of a row as broken.

    The reference replaces the frame in its shard, where all rows of the sequence are rejected.
    Returns the reference; None if the row has no readable sequence key.
    """
    identity = broken_identity(row, binding)
    if identity is None:
        return None
    reject = reject_row(row, binding, error)
    return ImageRef(
        key=reject.key,
        file=row.file,
        line=row.line,
        uri=reject.uri,
        start=None,
        stop=None,
        values=(),
        split=identity.split,
        group=identity.group,
        frame=(identity.sequence, "", error.reason.value, error.detail),
        cluster=identity.cluster,
    )


def _resolve_mask(path: str, table: str, binding: Binding) -> str:
    uri = resolve_path(path, table, binding.image_root)
    binding.check_image(uri)
    return uri


def _frames(
    rows: RowBatch, binding: Binding, sequences: Sequence[str]
) -> Iterable[tuple[str, str, str, str] | None]:
    if binding.resolved.schema.sequence is None:
        return (None,)
    return [_frame(row, binding, key) for row, key in zip(rows, sequences, strict=True)]


def _frame(row: Row, binding: Binding, sequence: str) -> tuple[str, str, str, str]:
    """Returns the fields of `FrameLocation` as a tuple, which is cheaper to shuffle."""
    settings = binding.resolved.schema.sequence
    column = binding.table_column(settings.order if settings else "")
    value = single_cell(row, column)
    if isinstance(value, float) and math.isfinite(value):
        return sequence, repr(value), "", ""
    return sequence, text_cell(row, column, numbers=True).strip(), "", ""
