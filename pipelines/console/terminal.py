"""Prints lines and tables for people, by rich: text is never markup, nor steers the terminal."""

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
        file: where to print in its place.
        width: in characters, or None for the terminal's own.
    """

    def __init__(self, file: IO[str] | None = None, width: int | None = None) -> None:
        self._console = Console(file=file, width=width, highlight=False)

    @property
    def width(self) -> int:
        """How many characters a line has room for."""
        return self._console.width

    def line(self, text: str = "", style: str = "") -> None:
        """Prints one line, however long, in a style of rich's."""
        self._console.print(Text(printable_line(text), style), soft_wrap=True)

    def lines(self, texts: Iterable[str]) -> None:
        """Prints some lines."""
        for text in texts:
            self.line(text)

    def heading(self, text: str, after: str = "") -> None:
        """Prints a line that begins in bold."""
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

        Args:
            heads: the columns' names.
            rows: their cells.
            right: numbers of the columns that are aligned to the right.
            show_header: whether the names are printed.
            pad_edge: whether there is a space to the left of the first column.
            whole: whether cells are printed in full, even if lines get longer than the terminal's.
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
