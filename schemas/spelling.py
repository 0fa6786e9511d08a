"""What a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_MAX_LENGTH, _MAX_NAMES = 100, 10_000
"""What is compared: a guess is worth some seconds, and each takes the square of its length."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a guess for a message, or "" if no known name is close.

    >>> did_you_mean("lable", ["image", "label"])
    " (did you mean 'label'?)"
    """
    if len(name) > _MAX_LENGTH:
        return ""
    short = (other for other in known if len(other) <= _MAX_LENGTH)
    close = difflib.get_close_matches(name, list(islice(short, _MAX_NAMES)), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
