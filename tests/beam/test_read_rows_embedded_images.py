"""ReadRows: embedded images become references to staging files, with a hash of their bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from recordmill.schemas import layout
from recordmill.schemas.records import Location, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.read_rows import _staged, _staging_file

PLAIN = Row({"image": "x.jpg"}, "t.parquet", 3)
REJECT = Reject.of_malformed_row("t.parquet", 4, "why")


def rows(*images: bytes) -> list[Row | Reject | SkippedInput]:
    found = [Row({}, "t.parquet", i, image=data) for i, data in enumerate(images, start=1)]
    return [*found, PLAIN, REJECT, SkippedInput("x", 2)]


def location(path: str, start: int, stop: int, data: bytes) -> Location:
    return Location(path, start, stop, hashlib.sha256(data).digest()[:16])


def test_images_become_byte_ranges_and_other_elements_pass(tmp_path: Path) -> None:
    path = str(tmp_path / layout.STAGING / "1.images")
    found = list(_staged(iter(rows(b"first", b"", b"third")), path))
    assert found == [
        Row({}, "t.parquet", 1, image=location(path, 0, 5, b"first")),
        Row({}, "t.parquet", 2, image=location(path, 5, 5, b"")),
        Row({}, "t.parquet", 3, image=location(path, 5, 10, b"third")),
        *(PLAIN, REJECT, SkippedInput("x", 2)),
    ]
    assert Path(path).read_bytes() == b"firstthird"
    assert [p.name for p in Path(path).parent.iterdir()] == ["1.images"]


def test_no_file_is_created_without_embedded_images(tmp_path: Path) -> None:
    assert list(_staged(iter([PLAIN]), str(tmp_path / "s" / "1"))) == [PLAIN]
    assert list(tmp_path.iterdir()) == []


def test_only_batches_with_bytes_of_other_images_are_taken_apart(tmp_path: Path) -> None:
    path = str(tmp_path / layout.STAGING / "1.images")
    paths = RowBatch.of([Row({"mask": f"{i}.png"}, "t.parquet", i) for i in range(2)])
    some = RowBatch.of([Row({"mask": mask}, "t.parquet", 3) for mask in ("3.png", b"mask", None)])
    whole, *apart = _staged(iter([paths, some]), path, others=("mask",))
    assert whole is paths
    staged = location(path, 0, 4, b"mask")
    assert [row.values["mask"] for row in apart] == ["3.png", staged, None]


def test_concurrent_attempts_do_not_mix_their_images(tmp_path: Path) -> None:
    """The table is replaced between two attempts, by one with images of the same lengths."""
    slow = _staged(iter(rows(b"old 1", b"old 2")), _staging_file(str(tmp_path)))
    found = {0: next(slow)}
    fast = list(_staged(iter(rows(b"new 1", b"new 2")), _staging_file(str(tmp_path))))
    found[1] = next(slow)
    list(slow)
    read = [Path(row.image.uri).read_bytes()[slice(*row.image[1:3])] for row in fast[:2]]
    assert read == [b"new 1", b"new 2"]
    assert all(found[i].image.staged != fast[i].image.staged for i in (0, 1))


def test_a_failed_attempt_leaves_no_file(tmp_path: Path) -> None:
    def failing():
        yield from rows(b"first")
        raise OSError("the worker's disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        list(_staged(failing(), str(tmp_path / "1.images")))
    abandoned = _staged(iter(rows(b"first", b"second")), str(tmp_path / "2.images"))
    next(abandoned)
    abandoned.close()
    assert list(tmp_path.iterdir()) == []
