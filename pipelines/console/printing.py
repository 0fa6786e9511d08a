"""Prints text on standard output and standard error: with `terminal.py`, the only place.

Tables, records and stores are written by strangers. No character of theirs steers a terminal or is
taken for markup, and no secret of an address is printed. The streams may be closed, full, or read
by nobody any more, which fails nothing here.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any, TextIO, cast

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
    print_error(f"recordmill: {text}")


def print_error(text: str) -> None:
    """Prints a text of any number of lines on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def open_closed_streams() -> None:
    """Opens the standard streams that this process was started without.

    Else the next file that is opened gets the number of one, and whatever is printed goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def ignore_output_errors() -> None:
    """Makes standard output and error discard what cannot be written, from the first error on.

    What their encoding lacks is escaped: they may be ASCII.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", Output(sys.stdout))
    sys.stderr = cast("TextIO", Output(sys.stderr))


class Output:
    """A stream that never raises.

    Attributes:
        failure: the first error; None while there was none.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Writes a text, or discards it."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._discard(error)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or discards it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._discard(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _discard(self, error: OSError) -> None:
        self.failure = self.failure or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # what is buffered is written again, at the end too
        os.close(nowhere)


def lost_output() -> str | None:
    """Writes what is buffered; returns why some output is lost, unless its reader has left."""
    sys.stdout.flush()
    failure = getattr(sys.stdout, "failure", None)
    if failure is None or isinstance(failure, BrokenPipeError):
        return None
    return f"standard output cannot be written to: {failure.strerror}"
