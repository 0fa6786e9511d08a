"""Prints lines and tables with rich; text is never interpreted as markup."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import IO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recordmill.pipelines.console.printing import printable_line

_WIDEST = 500


class Terminal:
    """Prints lines and tables on standard output.

    Args:
        file: a file to print to in place of standard output.
        width: the width in characters; None for the width of the terminal.
    """

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
