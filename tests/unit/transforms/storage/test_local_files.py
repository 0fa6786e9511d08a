"""Local files are written atomically, also by concurrent writers; folders are listed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from recordmill.transforms.storage import local_files
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.storage.local_files import LOCAL

NAMES = ["[1].jpg", "a/1.jpg", "a/b/.hidden", "a/b/2.jpg"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder whose name is a pattern, with the files of NAMES and a link to a folder."""
    folder = tmp_path / "x*"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / "link").symlink_to("a")
    (tmp_path / "xy").mkdir()
    (tmp_path / "xy" / "other.jpg").touch()
    return str(folder)


def test_concurrent_writes_of_one_file_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "train-00000.json", os.replace

    def replace_late(source: str, target: str) -> None:
        monkeypatch.setattr(local_files.os, "replace", replace)
        write_bytes(str(path), b"the other attempt")
        replace(source, target)

    monkeypatch.setattr(local_files.os, "replace", replace_late)
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

    monkeypatch.setattr(local_files.os, "replace", fail)
    with pytest.raises(PermissionError):
        write_bytes(str(path), b"after")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([before] if before else [])


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a regular file"):
        write_bytes(str(path), b"after")
    assert [p.is_fifo() for p in tmp_path.iterdir()] == [True]


def test_files_are_created_in_existing_folders_unless_asked_otherwise(tmp_path: Path) -> None:
    path = f"{tmp_path}/a/1.jpg"
    with pytest.raises(FileNotFoundError):
        LOCAL.write(path, b"", with_folders=False)
    LOCAL.write(path, b"1", with_folders=True)
    with LOCAL.open(path) as stream:
        assert stream.read() == b"1"


def test_links_are_listed_and_not_followed(folder: str) -> None:
    assert LOCAL.all_files_below(folder) == sorted([*NAMES, "link"])
    assert sorted(LOCAL.names_below(folder + "/")) == sorted([*NAMES, "link"])
    assert LOCAL.all_files_below(f"{folder}/none") == []


def test_patterns_match_below_a_folder_that_is_taken_literally(folder: str) -> None:
    assert LOCAL.files_below(folder, "*.jpg") == ["[1].jpg"]
    assert LOCAL.files_below(folder, "a/**") == ["a/1.jpg", "a/b/2.jpg"]
    assert LOCAL.expand(f"{folder}/[1].jpg") == [f"{folder}/[1].jpg"]  # which exists
    assert LOCAL.expand(f"{folder}/a/*.jpg") == [f"{folder}/a/1.jpg"]


def test_entries_are_folders_and_files(folder: str) -> None:
    folders, files = LOCAL.entries(folder)
    assert (sorted(folders), files) == (["a", "link"], ["[1].jpg"])
    assert LOCAL.entries(f"{folder}/none") == LOCAL.entries(f"{folder}/[1].jpg") == ([], [])


def test_deleting_a_link_keeps_its_folder(folder: str) -> None:
    LOCAL.delete(f"{folder}/link")
    LOCAL.delete(f"{folder}/link")  # deleted already
    assert LOCAL.all_files_below(folder) == NAMES
    LOCAL.delete(f"{folder}/a")
    assert LOCAL.all_files_below(folder) == ["[1].jpg"]


def test_folders_that_have_become_empty_are_deleted(folder: str) -> None:
    LOCAL.delete_files([f"{folder}/{name}" for name in ("a/b/.hidden", "a/b/2.jpg")], folder)
    assert LOCAL.entries(f"{folder}/a") == ([], ["1.jpg"])
    LOCAL.delete_files([f"{folder}/{name}" for name in ("a/1.jpg", "[1].jpg", "link")], folder)
    assert not LOCAL.exists(folder)


def test_a_folder_is_made_in_an_existing_one(folder: str) -> None:
    LOCAL.make_folder(f"{folder}/new")
    LOCAL.make_folder(f"{folder}/new")
    assert LOCAL.entries(f"{folder}/new") == ([], [])
    with pytest.raises(FileNotFoundError):
        LOCAL.make_folder(f"{folder}/none/new")


def test_a_file_moves_over_another(folder: str) -> None:
    LOCAL.move(f"{folder}/[1].jpg", f"{folder}/a/1.jpg")
    assert LOCAL.read(f"{folder}/a/1.jpg")[0] == b"[1].jpg"
    assert LOCAL.size(f"{folder}/a/1.jpg") == LOCAL.ranged_size(f"{folder}/a/1.jpg") == 7
    assert not LOCAL.exists(f"{folder}/[1].jpg")


@pytest.mark.parametrize("stated", [0, 10, 1000])  # 0 in /proc, fewer than there are if it grows
def test_a_file_is_read_to_its_end_in_parts(
    stated: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "a.png", bytes(range(250)) * 4
    path.write_bytes(data)
    state, read = list(os.stat(path)), os.pread
    state[stat.ST_SIZE] = stated
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(state))
    monkeypatch.setattr(os, "pread", lambda file, number, at: read(file, min(number, 99), at))
    assert LOCAL.read(str(path), None, 10**6)[0] == data
    assert LOCAL.read(str(path), (5, 500), 10**6)[0] == data[5:500]
