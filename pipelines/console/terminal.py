"""The terminal: tables, links and colors, and text that is printable whatever it contains."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from io import TextIOWrapper
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.masking import is_hidden, masked, visible


def printable(text: str) -> str:
    r"""Returns multi-line text with control characters escaped and secrets masked.

    >>> print(printable("a\x1b[2J\n[/b] https://host/x?sig=abc"))
    a\x1b[2J
    [/b] https://host/x?sig=***
    """
    return "\n".join(map(visible, masked(text).split("\n")))


def printable_line(text: str) -> str:
    r"""Returns text as a single line, with control characters escaped and secrets masked.

    >>> print(printable_line("a\nb"))
    a\x0ab
    """
    return visible(masked(text))


def _printable_json(document: str) -> str:
    r"""Returns a JSON document with hidden characters escaped and secrets masked.

    >>> print(_printable_json('{"key": "a\u202eb"}'))
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
    """Prints text on standard output."""
    print(printable(text), end=end)


# The fields that the JSON documents of all commands have, here of one that shows something.
def outcome(*problems: RecordmillError, state: str = "shown") -> dict[str, Any]:
    """Returns the head of a JSON document: state, exit code and message of its command."""
    if not problems:
        return {"state": state, "exit_code": 0, "message": ""}
    first = problems[0]
    message = "\n".join(map(str, problems))
    return {"state": first.state, "exit_code": first.exit_code, "message": message}


def say_json(document: Mapping[str, Any]) -> None:
    """Prints a JSON document on standard output, as one line."""
    print(_printable_json(json.dumps(document, ensure_ascii=False)))


def finish(
    as_json: bool,
    document: Mapping[str, Any],
    show: Callable[[], None],
    *problems: RecordmillError,
    state: str = "shown",
) -> int:
    """Prints the problems of a command and its result; returns its exit code.

    The result is a JSON document, or what a function prints. `state` is that of a command without
    problems.
    """
    head = outcome(*problems, state=state)
    for problem in problems:
        warn(str(problem))
    if as_json:
        say_json({**head, **document})
    else:
        show()
    return int(head["exit_code"])


# Whether each line on standard error is a JSON object.
_events = threading.Event()


def use_events(enabled: bool) -> None:
    """Sets whether messages on standard error are JSON objects, one per line."""
    if enabled:
        _events.set()
    else:
        _events.clear()


def warn(text: str) -> None:
    """Prints a message on standard error, with the program's name as prefix."""
    message = text.removeprefix("warning: ")
    level = "ERROR" if message == text else "WARNING"
    print_error(message if _events.is_set() else f"recordmill: {text}", level)


def print_error(text: str, level: str = "ERROR") -> None:
    """Prints text of any number of lines on standard error.

    `level` is its log level, which only JSON objects state.
    """
    shown = event(level, "recordmill", text) if _events.is_set() else printable(text)
    print(shown, file=sys.stderr, flush=True)


def event(level: str, logger: str, message: str, **more: str) -> str:
    """Returns a message on standard error as a line of JSON.

    `more`: `time`, if it is not now; `error`.
    """
    time = datetime.now(timezone.utc).isoformat("T", "milliseconds")
    document = {"time": time, "level": level, "logger": logger, "message": message} | more
    return _printable_json(json.dumps(document, ensure_ascii=False))


def open_closed_streams() -> None:
    """Opens the standard streams that the process was started without.

    Otherwise the next file that is opened would get the descriptor of a standard stream, and
    printed text would be written to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def ignore_output_errors() -> None:
    """Makes standard output and standard error discard text after their first write error.

    Characters that their encoding lacks are escaped.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", Output(sys.stdout))
    sys.stderr = cast("TextIO", Output(sys.stderr))


class Output:
    """A stream that never raises."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Writes text, or discards it after an error."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flushes the buffer, or discards it after an error."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, action: Callable[..., Any], *text: str) -> None:
        try:
            action(*text)
        except OSError as error:
            self.failure = self.failure or error
            null = os.open(os.devnull, os.O_WRONLY)
            # The stream keeps its buffer and writes it again later, also at exit: let that succeed.
            os.dup2(null, self._stream.fileno())
            os.close(null)


def lost_output() -> str | None:
    """Flushes standard output, and returns the reason if output was lost.

    A closed pipe is not reported, because its reader needs no more output.
    """
    sys.stdout.flush()
    failure = getattr(sys.stdout, "failure", None)
    if failure is None or isinstance(failure, BrokenPipeError):
        return None
    return f"standard output cannot be written to: {failure.strerror}"


_WIDEST = 500


class Terminal:
    """Prints lines and tables on standard output, or to a file; the width is in characters."""

    def __init__(self, file: IO[str] | None = None, width: int | None = None) -> None:
        self._console = Console(file=file, width=width, highlight=False)

    @property
    def width(self) -> int:
        """The width of a line in characters."""
        return self._console.width

    def line(self, text: str = "", style: str = "") -> None:
        """Prints a line, without wrapping it."""
        self._console.print(Text(printable_line(text), style), soft_wrap=True)

    def lines(self, texts: Iterable[str]) -> None:
        """Prints lines."""
        for text in texts:
            self.line(text)

    def heading(self, text: str, after: str = "") -> None:
        """Prints a line with a bold heading."""
        heading = Text(printable_line(text), "bold")
        self._console.print(heading, Text(printable_line(after)), soft_wrap=True)

    def table(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        right: Collection[int] = (),
        show_header: bool = True,
        pad_edge: bool = True,
        whole: bool = False,
    ) -> None:
        """Prints a table.

        `pad_edge`: whether to print a space before the first column. `whole`: whether to print
        cells in full, even in lines longer than the terminal's width.
        """
        table = Table(box=None, show_header=show_header, pad_edge=pad_edge)
        for number, head in enumerate(heads):
            justify = "right" if number in right else "left"
            table.add_column(Text(printable_line(head)), justify=justify, no_wrap=whole)  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(Text(printable_line(cell)) for cell in row))
        if whole:
            options = self._console.options.update(max_width=_WIDEST)
            widest = Measurement.get(self._console, options, table).maximum
            self._console.width = max(self._console.width, widest)
        self._console.print(table)
