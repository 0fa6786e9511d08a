"""Lakehouse tables: their addresses in options, and the rows that one gained after a snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.sources.data_files import DataFile
from recordmill.transforms.storage.files import exists

_ADDRESS = re.compile(r"(delta|iceberg):(.*?)(?:@(\d+))?", re.DOTALL)

_COLORS = re.compile(r"\x1b\[[0-9;]*m")

DELTA, ICEBERG = "delta", "iceberg"

_FORMS = {
    DELTA: "delta:PATH or delta:PATH@VERSION",
    ICEBERG: "iceberg:CATALOG.NAMESPACE.TABLE or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT",
}


class TableAddress(NamedTuple):
    """The address of a lakehouse table."""

    kind: str  # `DELTA` or `ICEBERG`
    name: str  # the path of the table, or its name with that of its catalog
    snapshot: int | None  # the version or the id of the snapshot; None for the current one

    @classmethod
    def parse(cls, text: str) -> TableAddress | None:
        """Returns the address that a text is; None if it is a path.

        `text` is a value of `--input` or `--labels`.

        >>> TableAddress.parse("delta:tables/birds@7")
        TableAddress(kind='delta', name='tables/birds', snapshot=7)
        """
        match = _ADDRESS.fullmatch(text)
        return match and cls(match[1], match[2], int(match[3]) if match[3] else None)

    def __str__(self) -> str:
        at = "" if self.snapshot is None else f"@{self.snapshot}"
        return f"{self.kind}:{self.name}{at}"

    def error(self, message: str) -> UsageError:
        """Returns an error about the table."""
        return UsageError(f"{self}: {message}")

    def malformed(self) -> UsageError:
        """Returns the error of an address without the name of a table."""
        return self.error(f"is not the address of a table; expected {_FORMS[self.kind]}")

    def library(self, name: str) -> Any:
        """Imports a module of the library that reads the table.

        Raises UsageError if the library is not installed.
        """
        try:
            return import_module(name)
        except ImportError as error:
            needs = f"needs the extra [{self.kind}]: pip install 'recordmill[{self.kind}]'"
            raise self.error(f"{needs} ({error})") from error


def plain_text(error: Exception) -> str:
    """Returns the text of a library's error on one line, without the colors of a terminal."""
    return " ".join(_COLORS.sub("", str(error)).split())


WHOLE_TABLE = "Convert the whole table without --append, which also removes deleted rows."


@dataclass(frozen=True)
class History:
    """The snapshots of a table from that of a base version on."""

    address: TableAddress
    snapshots: Sequence[int]  # their ids, from the oldest; the first is that of the base version
    files: Callable[[int], tuple[TableFile, ...]]
    # Returns whether a snapshot has the same rows as the one before it, in other files, as after a
    # compaction.
    is_rewrite: Callable[[int], bool]
    # Returns the operation of a snapshot, for messages; "" if it is unknown.
    operation: Callable[[int], str]
    noun: str = "snapshot"

    def files_by_rows(self, number: int) -> dict[tuple[str, bytes], TableFile]:
        """Returns the files of a snapshot by their path and their deleted rows.

        `number` is the position of the snapshot in `snapshots`.
        """
        files = self.files(self.snapshots[number])
        return {
            (f.path, f.options.deleted if isinstance(f.options, DataFile) else b""): f
            for f in files
        }


def added_files(history: History) -> tuple[TableFile, ...]:
    """Returns the files with the rows that were added after the first snapshot, sorted by path.

    Rows that were compacted into one file with older ones are read from their files before that.
    Raises UsageError if rows of the first snapshot were changed or deleted, or if a file is
    missing.
    """
    last, start = len(history.snapshots) - 1, 0
    before, current = history.files_by_rows(0), history.files_by_rows(last)
    found = dict[tuple[str, bytes], TableFile]()
    while not before.keys() <= current.keys():
        stop = _next_rewrite(history, start)
        after = history.files_by_rows(stop - 1)
        if stop > last or not before.keys() <= after.keys():
            raise history.address.error(_changed(history, start, stop))
        found |= {rows: after[rows] for rows in after.keys() - before.keys()}
        start, before = stop, history.files_by_rows(stop)
    for rows, file in found.items():
        if rows not in current and not exists(file.path):
            raise history.address.error(
                f"{file.path} is missing: its rows were added after {_first(history)}, and "
                f"compacted into another file since. {WHOLE_TABLE}"
            )
    found |= {rows: current[rows] for rows in current.keys() - before.keys()}
    return tuple(sorted(found.values(), key=lambda file: file.path))


def _next_rewrite(history: History, start: int) -> int:
    """Returns the position of the first rewrite after a snapshot; that after the last if none."""
    later = range(start + 1, len(history.snapshots))
    found = (number for number in later if history.is_rewrite(history.snapshots[number]))
    return next(found, len(history.snapshots))


def _changed(history: History, start: int, stop: int) -> str:
    """Returns the message on the first snapshot that lacks rows of an earlier one."""
    before, snapshots = history.files_by_rows(start).keys(), history.snapshots
    changed = (n for n in range(start + 1, stop) if not before <= history.files_by_rows(n).keys())
    found = snapshots[next(changed)]
    operation = history.operation(found)
    return (
        f"{history.noun} {found}{operation and f' ({operation})'} changes or deletes older rows; "
        f"expected only rows that were added after {_first(history)}. {WHOLE_TABLE}"
    )


def _first(history: History) -> str:
    return f"{history.noun} {history.snapshots[0]}, which --base has"
