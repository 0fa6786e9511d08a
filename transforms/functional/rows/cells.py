"""Single values in the columns of a row; errors name the column."""

from __future__ import annotations

from typing import Any

from recordmill.schemas.records import MAX_CHARACTERS, Row
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.values.typed import short_repr, single_value, to_bytes


def text_cell(row: Row, column: str, numbers: bool = False) -> str:
    """Returns a key, path or other short text; raises RecordError if it is missing or no such text.

    With `numbers`, integers are accepted as their decimal digits.
    """
    value = single_cell(row, column)
    if value is None or value == "":
        raise RecordError(Reason.MISSING_VALUE, f"column {column!r}: empty; expected text")
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RecordError(
            Reason.WRONG_TYPE, f"column {column!r}: expected text, got {short_repr(value)}"
        )
    if len(value) > MAX_CHARACTERS:
        what = f"expected at most {MAX_CHARACTERS:,} characters, got {len(value):,}"
        raise RecordError(Reason.MALFORMED_ROW, f"column {column!r}: {what}")
    to_bytes(value, is_text=True)
    return value


def single_cell(row: Row, column: str) -> Any:
    """Returns the value in a column of a row, or of the equal items of a list.

    Raises RecordError if the items differ.
    """
    try:
        return single_value(row.values.get(column))
    except RecordError as error:
        raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None
