"""Local files are written atomically, also by concurrent writers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.files import read_bytes, write_bytes


def test_concurrent_writes_of_one_file_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "train-00000.json", os.replace

    def replace_late(source: str, target: str) -> None:
        monkeypatch.setattr(files.os, "replace", replace)
        write_bytes(str(path), b"the other attempt")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", replace_late)
    write_bytes(str(path), b"this attempt")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {path.name: b"this attempt"}


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_failed_write_keeps_the_existing_file(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    if before:
        path.write_bytes(before)

    def fail(source: str, target: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), target)

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(PermissionError):
        write_bytes(str(path), b"after")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([before] if before else [])


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a regular file"):
        write_bytes(str(path), b"after")
    assert [p.is_fifo() for p in tmp_path.iterdir()] == [True]


def test_byte_ranges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"0123456789")
    assert files.ranged_size(str(path)) == 10
    with files.open_range(str(path), 3, 8) as stream:
        assert stream.peek(2)[:2] == b"34"  # type: ignore[attr-defined]
        assert stream.read() == b"34567"
        assert (stream.seek(-2, os.SEEK_END), stream.read()) == (3, b"67")
    with files.open_range(str(path), 5, 5) as stream:
        assert stream.read() == b""


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"0123")
    with (
        files.open_range(str(path), 3, 8) as stream,
        pytest.raises(EOFError, match=r"^the file has become shorter since it was listed$"),
    ):
        stream.read()


@pytest.mark.parametrize(
    ("written", "asked", "form"),
    [
        ("e\u0301.jpg", "\xe9.jpg", "NFD"),
        ("\xe9.jpg", "e\u0301.jpg", "NFC"),
        ("\xe9.jpg", "\xe8.jpg", ""),
        ("e.jpg", "f.jpg", ""),
    ],
)
def test_a_name_in_another_unicode_form_is_reported(
    written: str, asked: str, form: str, tmp_path: Path
) -> None:
    (tmp_path / written).touch()
    with pytest.raises(RecordError) as error:
        read_bytes(str(tmp_path / asked))
    assert error.value.reason is Reason.MISSING_FILE
    more = f"; a file exists with this name in the Unicode form {form}, so use one form"
    assert error.value.detail.endswith(f"No such file or directory{more if form else ''}")
