"""Text that is safe to show: without invisible and control characters."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that control terminals, reverse text, or are invisible."""


def visible(text: str) -> str:
    r"""Returns a text with its invisible characters escaped as in Python.

    >>> print(visible("a\x1b[2Jb"), visible("evil\u202egpj.exe"))
    a\x1b[2Jb evil\u202egpj.exe
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(c) if is_hidden(c) else c for c in text)


def is_hidden(character: str) -> bool:
    """Returns whether a character is invisible or a control character."""
    return unicodedata.category(character) in _HIDDEN


def escaped(character: str) -> str:
    r"""Returns a character escaped as in Python, also if it is ASCII.

    >>> print(escaped("\n"), escaped("猫"))
    \x0a \u732b
    """
    if ord(character) < 128:
        return f"\\x{ord(character):02x}"
    return character.encode("ascii", "backslashreplace").decode("ascii")


def decode_text(value: bytes) -> str | None:
    """Returns bytes as text, if they are UTF-8 without control characters except newlines and tabs.

    >>> decode_text("naïve".encode()), decode_text(bytes([0, 1]))
    ('naïve', None)
    """
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    odd = any(unicodedata.category(c) == "Cc" and c not in "\t\n\r" for c in text)
    return None if odd else text
