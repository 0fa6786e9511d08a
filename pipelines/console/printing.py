"""Prints text on standard output and standard error: with `terminal.py`, the only place.

Tables, records and stores are written by strangers. No character of theirs steers a terminal or is
taken for markup, and no secret of an address is printed.
"""

from __future__ import annotations

import sys

from recordmill.schemas.masking import masked
from recordmill.transforms.functional.rendering.visible_text import is_hidden, visible


def printable(text: str) -> str:
    r"""Returns a text of any number of lines as it can be printed anywhere.

    >>> print(printable("a\x1b[2J\n[/b] https://host/x?sig=abc"))
    a\x1b[2J
    [/b] https://host/x?sig=***
    """
    return "\n".join(map(visible, masked(text).split("\n")))


def printable_line(text: str) -> str:
    r"""Returns a text as one line that can be printed anywhere.

    >>> print(printable_line("a\nb"))
    a\x0ab
    """
    return visible(masked(text))


def printable_json(document: str) -> str:
    r"""Returns a document of JSON with its hidden characters written as JSON escapes them.

    >>> print(printable_json('{"key": "a\u202eb"}'))
    {"key": "a\u202eb"}
    """
    text = masked(document)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return "".join(_json_escape(c) if is_hidden(c) and c != "\n" else c for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def say(text: str, end: str = "\n") -> None:
    """Prints a text of any number of lines on standard output."""
    print(printable(text), end=end)


def say_json(document: str) -> None:
    """Prints a document of JSON on standard output."""
    print(printable_json(document))


def warn(text: str) -> None:
    """Prints a message on standard error, after the command's name."""
    tell(f"recordmill: {text}")


def tell(text: str) -> None:
    """Prints a text of any number of lines on standard error."""
    print(printable(text), file=sys.stderr, flush=True)
