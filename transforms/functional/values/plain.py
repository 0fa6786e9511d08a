"""Converts the values of a column in one step, where all of them are plain.

Plain values have one type, and no form that needs a decision: integers and floats in their usual
notation, text, bytes. The functions return None for other columns, whose values are then converted
one by one, by `typed`, with the same results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from recordmill.schemas.features import Kind

# Numbers far from the limits of int64 and float32, each followed by a line break.
_INTEGERS = re.compile(r"(?:(?:0|-?[1-9][0-9]{0,17})\n)+")
_FLOATS = re.compile(r"(?:-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,20}(?:e-[0-9]{1,2})?\n)+")


def plain_column(values: Sequence[Any], kind: Kind, is_text: bool) -> list[Any] | None:
    """Returns the values of a feature without a shape or classes; None if they are not plain."""
    types = set(map(type, values))
    if kind is Kind.BYTES:
        return _texts(values) if types == {str} else list(values) if types == {bytes} else None
    if is_text and types == {str}:
        found = plain_type(values)
        if kind is Kind.FLOAT and found is not None:
            return _rounded(list(map(float, values)))
        return list(map(int, values)) if found == "int" else None
    if kind is Kind.FLOAT and types == {float}:
        return _rounded(values)
    if kind is Kind.INT64 and types == {int} and -(2**63) <= min(values) <= max(values) < 2**63:
        return list(values)
    return None


def plain_type(texts: Sequence[str]) -> str | None:
    """Returns "int" or "float" if all texts, one at least, are such numbers; None otherwise."""
    lines = "\n".join(texts) + "\n"  # one match for all texts is faster than one for each
    if lines.count("\n") > len(texts):
        return None
    if _INTEGERS.fullmatch(lines):
        return "int"
    return "float" if _FLOATS.fullmatch(lines) else None


def are_plain_keys(values: Sequence[Any]) -> TypeGuard[Sequence[str]]:
    """Returns whether all values are text that is not empty and can be encoded."""
    return set(map(type, values)) == {str} and all(values) and _texts(values) is not None


def distinct(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the distinct values if all are text or all are integers, else all values.

    Values of several types can be equal, such as 1, 1.0 and True.
    """
    return list(dict.fromkeys(values)) if set(map(type, values)) in ({str}, {int}) else values


def _texts(values: Sequence[str]) -> list[bytes] | None:
    try:
        return [value.encode() for value in values]
    except UnicodeEncodeError:
        return None


def _rounded(values: Sequence[float]) -> list[float] | None:
    """Returns numbers rounded to float32; None if one is infinite, or becomes so."""
    with np.errstate(over="ignore"):
        rounded = np.array(values, np.float64).astype(np.float32)
    return list(rounded.tolist()) if np.isfinite(rounded).all() else None
