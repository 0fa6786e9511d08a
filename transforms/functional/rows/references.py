"""Rows as image references: where the image is, and the typed values of all other features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TypeVar

from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.rows.annotations import with_annotations
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.cells import single_cell, text_cell
from recordmill.transforms.functional.rows.column_batch import once
from recordmill.transforms.functional.rows.identities import (
    broken_identity,
    identities_of,
    reject_row,
)
from recordmill.transforms.functional.rows.image_paths import resolve_path
from recordmill.transforms.functional.rows.ref_batch import RefBatch
from recordmill.transforms.functional.rows.row_batch import RowBatch

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
        with_annotations(
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
