"""Embedded pictures get an address: once, whole, and the same after every retry."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.layout import is_staged
from schemas.records import Aside, Embedded, Location, Row
from schemas.rejects import Reject
from schemas.tables import TableFile, TablePart
from transforms.staging import staged, staging_file

PLAIN = Row({"image": "x.jpg"}, "t.parquet", 3)
REJECT = Reject.of_malformed_row("t.parquet", 4, "why")


def rows(*pictures: bytes) -> list[Row | Embedded | Reject | Aside]:
    found = [Embedded(Row({}, "t.parquet", i), data) for i, data in enumerate(pictures, start=1)]
    return [*found, PLAIN, REJECT, Aside("x", 2)]


def test_every_picture_has_its_range_and_the_rest_passes(tmp_path: Path) -> None:
    path = str(tmp_path / "s" / "1.images")
    found = list(staged(iter(rows(b"first", b"", b"third")), path))
    assert found == [
        Row({}, "t.parquet", 1, image=Location(path, 0, 5)),
        Row({}, "t.parquet", 2, image=Location(path, 5, 5)),
        Row({}, "t.parquet", 3, image=Location(path, 5, 10)),
        *(PLAIN, REJECT, Aside("x", 2)),
    ]
    assert Path(path).read_bytes() == b"firstthird"
    assert [p.name for p in Path(path).parent.iterdir()] == ["1.images"]


def test_without_an_embedded_picture_no_file_is_made(tmp_path: Path) -> None:
    assert list(staged(iter([PLAIN]), str(tmp_path / "s" / "1"))) == [PLAIN]
    assert list(tmp_path.iterdir()) == []


def test_a_retry_while_another_attempt_writes_gives_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "1.images")
    slow = staged(iter(rows(b"first", b"second")), path)
    next(slow)
    fast = list(staged(iter(rows(b"first", b"second")), path))
    assert Path(path).read_bytes() == b"firstsecond"
    assert list(slow) == fast[1:]
    assert Path(path).read_bytes() == b"firstsecond"
    assert [p.name for p in tmp_path.iterdir()] == ["1.images"]


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing():
        yield from rows(b"first")
        raise OSError("the worker's disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        list(staged(failing(), str(tmp_path / "1.images")))
    abandoned = staged(iter(rows(b"first", b"second")), str(tmp_path / "2.images"))
    next(abandoned)
    abandoned.close()
    assert list(tmp_path.iterdir()) == []


def test_each_part_has_a_file_of_its_own_and_always_the_same() -> None:
    file, other = TableFile("t.parquet", "parquet"), TableFile("u.parquet", "parquet")
    parts = [TablePart(file, 0), TablePart(file, 1), TablePart(other, 0), TablePart(file)]
    files = [staging_file("out/birds/1.0.0", part) for part in parts]
    assert len(set(files)) == 4
    assert files == [staging_file("out/birds/1.0.0", part) for part in parts]
    assert all(is_staged(path) for path in files)
