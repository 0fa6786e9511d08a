"""Whole numbers as people write them in flags, and as places are named: ASCII digits only."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"-?[0-9]{1,4000}")


def is_integer(text: str) -> bool:
    """Returns whether a text is a whole number: digits of ASCII, and perhaps a minus.

    Python takes more: other scripts' digits, `1_000`, spaces; and `isdigit` even what it refuses.

    >>> is_integer("-12"), is_integer("²"), is_integer("1_000"), is_integer(" 1"), is_integer("٣")
    (True, False, False, False, False)
    """
    return bool(_INTEGER.fullmatch(text))


def parse_integer(text: str) -> int:
    """Returns the whole number that a text is.

    Raises:
        ValueError: if it is none.
    """
    if not is_integer(text):
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(text)
