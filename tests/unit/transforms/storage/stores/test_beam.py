"""The operations of a store of Beam, here its local file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.storage.stores.beam import BEAM
from recordmill.transforms.storage.stores.store import TooLargeError

NAMES = ["1.jpg", "a/1.jpg", "a/b/2.txt"]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A folder with the files of NAMES."""
    for name in NAMES:
        BEAM.write(f"{tmp_path}/{name}", name.encode(), with_folders=True)
    return str(tmp_path)


def test_files_are_read_whole_and_in_ranges(root: str) -> None:
    path = f"{root}/a/b/2.txt"
    assert BEAM.read(path)[0] == b"a/b/2.txt"
    assert BEAM.read(path, None, 9) == (b"a/b/2.txt", None)
    assert BEAM.read(path, (2, 5), 3) == (b"b/2", None)
    assert BEAM.read(path, (4, 50), 9) == (b"2.txt", None)
    with BEAM.open_range(path, 2, 5) as stream:
        assert stream.read() == b"b/2"
    with BEAM.open_range(path, 4, 50) as stream, pytest.raises(EOFError, match="become shorter"):
        stream.read()
    for span in (None, (0, 9)):
        with pytest.raises(TooLargeError):
            BEAM.read(path, span, 8)


def test_sizes_and_missing_files(root: str) -> None:
    assert BEAM.size(f"{root}/1.jpg") == BEAM.ranged_size(f"{root}/1.jpg") == 5
    assert BEAM.exists(f"{root}/1.jpg")
    assert BEAM.is_file(f"{root}/1.jpg")
    assert not BEAM.exists(f"{root}/none")
    assert BEAM.version_tag(f"{root}/1.jpg") is None
    with pytest.raises(FileNotFoundError):
        BEAM.read(f"{root}/none")


def test_files_are_listed_at_any_depth(root: str) -> None:
    assert sorted(BEAM.names_below(f"{root}/")) == BEAM.all_files_below(root) == NAMES
    assert BEAM.files_below(root, "*") == ["1.jpg"]
    assert BEAM.files_below(f"{root}/", "**.jpg") == ["1.jpg", "a/1.jpg"]
    assert BEAM.entries(root) == (["a"], ["1.jpg"])
    assert BEAM.entries(f"{root}/none") == ([], [])


def test_an_existing_path_is_not_a_pattern(root: str) -> None:
    BEAM.write(f"{root}/[1].jpg", b"", with_folders=True)
    assert BEAM.expand(f"{root}/[1].jpg") == [f"{root}/[1].jpg"]
    assert BEAM.expand(f"{root}/a/*") == [f"{root}/a/1.jpg"]
    assert BEAM.expand(f"{root}/none") == []


def test_files_are_copied_and_moved(root: str) -> None:
    BEAM.copy(f"{root}/1.jpg", f"{root}/2.jpg")
    BEAM.copy(f"{root}/a/1.jpg", f"{root}/3.jpg")
    assert [BEAM.read(f"{root}/{n}.jpg")[0] for n in (2, 3)] == [b"1.jpg", b"a/1.jpg"]
    BEAM.move(f"{root}/2.jpg", f"{root}/4.jpg")
    assert BEAM.files_below(root, "*") == ["1.jpg", "3.jpg", "4.jpg"]


def test_files_are_deleted_with_those_below_and_in_batches(root: str) -> None:
    many = [f"{root}/many/{number}" for number in range(201)]
    for path in many:
        BEAM.write(path, b"", with_folders=True)
    BEAM.delete_files(many[1:], f"{root}/many")
    assert BEAM.all_files_below(f"{root}/many") == ["0"]
    BEAM.delete_files([], root)
    BEAM.delete(f"{root}/1.jpg")
    assert BEAM.all_files_below(root) == ["a/1.jpg", "a/b/2.txt", "many/0"]
