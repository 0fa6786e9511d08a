"""Finds the data files with the rows that a lakehouse table gained after one of its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.sources.data_files import DataFile
from recordmill.transforms.storage.files import exists
from recordmill.transforms.storage.lakehouse.address import TableAddress

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
