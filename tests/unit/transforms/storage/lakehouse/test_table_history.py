"""Tests of the files that a table gained: of snapshots that are given as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.sources.parquet import DataFile
from recordmill.transforms.storage.lakehouse import History, TableAddress, _added_files

# The snapshots of a table: their files, "b!" with a deleted row; a rewrite begins with "=".
APPENDS = ("a", "a b", "a b c")
COMPACTED = ("a", "a b", "= ab", "ab c", "= abc", "abc d")


def history(folder: Path, *snapshots: str) -> History:
    """Returns a history whose snapshots have the ids 10, 11 and so on."""

    def files(id_: int) -> tuple[TableFile, ...]:
        names = snapshots[id_ - 10].removeprefix("= ").split()
        return tuple(
            TableFile(
                str(folder / name.rstrip("!")),
                "parquet",
                options=DataFile(b"", name[len(name.rstrip("!")) :].encode()),
            )
            for name in names
        )

    return History(
        TableAddress("iceberg", "c.d.t", None),
        range(10, 10 + len(snapshots)),
        files,
        lambda id_: snapshots[id_ - 10].startswith("="),
        lambda id_: "delete" if id_ == 12 else "",
    )


def added(folder: Path, *snapshots: str) -> str:
    """Returns the names of the files with rows that were added after the first snapshot."""
    for name in "abcde":
        (folder / name).touch()
    return " ".join(Path(file.path).name for file in _added_files(history(folder, *snapshots)))


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        (("a",), ""),
        (("a", "a"), ""),
        (APPENDS, "b c"),
        (COMPACTED, "b c d"),
        (COMPACTED[1:], "c d"),
        (COMPACTED[2:], "c d"),
        (COMPACTED[4:], "d"),
        # A rewrite without the files of the first snapshot matters as little as a change of others.
        (("a", "a b", "a b c", "= a bc", "a bc! d"), "bc d"),
        # The first snapshot is restored.
        (("a b", "c", "a b"), ""),
        (("", "a"), "a"),
    ],
)
def test_added_files(tmp_path: Path, snapshots: tuple[str, ...], expected: str) -> None:
    assert added(tmp_path, *snapshots) == expected


@pytest.mark.parametrize(
    ("snapshots", "changed"),
    [
        (("a b", "a"), "11"),
        (("a b", "a b c", "a b! c", "a b! c d"), "12 (delete)"),
        (("a", "a b", "= ab", "ab! c"), "13"),
        (("a", "a b", "= ab", "ab c", "= abc", "d"), "15"),
        (("a b", "b", "= b", "b c"), "11"),
    ],
)
def test_changed_rows_are_rejected(
    tmp_path: Path, snapshots: tuple[str, ...], changed: str
) -> None:
    with pytest.raises(UsageError) as error:
        added(tmp_path, *snapshots)
    assert f"iceberg:c.d.t: snapshot {changed} changes or deletes older rows; " in str(error.value)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        _added_files(history(tmp_path, "a", "a b", "= ab"))
    assert str(error.value) == (
        f"iceberg:c.d.t: {tmp_path}/b is missing: its rows were added after snapshot 10, which "
        "--base has, and compacted into another file since. Convert the whole table without "
        "--append, which also removes deleted rows."
    )
