"""Standard output and error that may be closed, full, or read by nobody any more."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any, TextIO, cast


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
