"""The store of a path, byte ranges, Unicode forms, and messages of files that cannot be read."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.shards.shard_task import _file_version_tags
from recordmill.transforms.storage import files, local_files
from recordmill.transforms.storage.files import ABSENT, read_bytes
from recordmill.transforms.storage.local_files import LOCAL, ImageRootGuard
from recordmill.transforms.storage.stores import objects
from recordmill.transforms.storage.stores.beam import BEAM, HDFS
from recordmill.transforms.storage.stores.objects import OBJECTS
from recordmill.transforms.storage.stores.store import Store
from recordmill.transforms.storage.stores.web import WEB


@pytest.mark.parametrize(
    ("path", "store"),
    [
        ("/data/1.jpg", LOCAL),
        ("a:b/1.jpg", LOCAL),
        ("", LOCAL),
        ("https://birds.example/1.jpg", WEB),
        ("http://birds.example/1.jpg", WEB),
        ("hdfs://birds/1.jpg", HDFS),
        ("s3://birds/1.jpg", OBJECTS),
        ("gs://birds", OBJECTS),
        ("azfs://account/birds/1.jpg", OBJECTS),
        ("s3://birds/../1.jpg", BEAM),  # obstore rejects the key
        ("other://birds/1.jpg", BEAM),
    ],
)
def test_each_path_has_a_store(path: str, store: Store) -> None:
    assert files.store_of(path) is store


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


class Parts(io.FileIO):
    """A file of a file system that returns a part of what is asked for."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[:4])


def test_partial_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(local_files, "open", lambda path, *_, **__: Parts(path), raising=False)
    with files.open_range(str(path), 1, 10) as stream:
        assert stream.raw.read(9) == b"123456789"  # type: ignore[attr-defined]


NFC, NFD = "\xe9", "e\u0301"


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (f"{NFD}.jpg", f"{NFC}.jpg"),
        (f"{NFC}.jpg", f"{NFD}.jpg"),
        (f"{NFD}/a/{NFD}.jpg", f"{NFC}/a/{NFC}.jpg"),
        (f"{NFC}/{NFD}.jpg", f"{NFC}/{NFC}.jpg"),
    ],
)
def test_a_file_in_another_unicode_form_is_read(written: str, asked: str, tmp_path: Path) -> None:
    (tmp_path / written).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / written).write_bytes(b"other")
    ref = ImageRef("key", "t.csv", 1, f"{tmp_path}/{asked}", None, None, ())
    tags = _file_version_tags([ref], ImageRootGuard(str(tmp_path)), remote=False)
    before = dict(tags)
    assert read_bytes(ref.uri, seen=tags) == b"other"
    assert tags == before
    assert tags[ref.uri] not in (None, ABSENT)
    (tmp_path / asked).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / asked).write_bytes(b"exact")
    assert read_bytes(ref.uri) == b"exact"
    assert read_bytes(f"{tmp_path}/{written}") == b"other"


def test_objects_have_to_be_named_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such object")

    monkeypatch.setattr(objects.OBJECTS, "read", get)
    monkeypatch.setattr(files, "exists", lambda path: path == f"s3://birds/{NFD}.jpg")
    with pytest.raises(RecordError) as error:
        read_bytes(f"s3://birds/{NFC}.jpg")
    assert (error.value.reason, error.value.detail) == (
        Reason.MISSING_FILE,
        f"s3://birds/{NFC}.jpg: no such object; a file exists with this name in the Unicode form "
        "NFD, so use one form",
    )


def test_paths_of_windows_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as error:
        read_bytes(f"{tmp_path}/owl\\1.jpg")
    assert error.value.detail == (
        f"{tmp_path}/owl\\1.jpg: No such file or directory; expected / between folders, got \\"
    )


@pytest.mark.parametrize(
    ("asked", "there", "hint"),
    [
        ("0.JPG", "0.jpg", "; the folder has 0.jpg"),
        ("7.jpg", "007.jpg", "; the folder has 007.jpg"),
        ("a%20b.jpg", "a b.jpg", "; the folder has a b.jpg"),
        ("a.jpg ", "a.jpg", "; the folder has a.jpg"),
        ("a.jpg", "A.jpeg", "; the folder has A.jpeg"),
        ("a", "b", ""),
        ("1.jpg", "10.jpg", ""),
        ("data/upload/1/x.jpg", "x.jpg", "; only Label Studio's server has this path: keep what "),
        ("data/local-files/?d=x.jpg", "x.jpg", "; only Label Studio's server has this path: keep "),
    ],
)
def test_a_missing_file_has_a_hint_at_its_name(
    asked: str, there: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / there).touch()
    with pytest.raises(RecordError) as error:
        read_bytes(f"{tmp_path}/{asked}")
    said = error.value.detail.removeprefix(f"{tmp_path}/{asked}: No such file or directory")
    assert said.startswith(hint)
    assert bool(said) == bool(hint)


def test_other_names_are_not_read(tmp_path: Path) -> None:
    (tmp_path / f"{NFD}.jpg").touch()
    for name in ("e.jpg", "\xe8.jpg", f"{NFC}.png", f"{NFC}\0.jpg", f"{NFC}\ud800.jpg"):
        with pytest.raises(RecordError):
            read_bytes(f"{tmp_path}/{name}")


def test_a_file_in_another_unicode_form_is_confined_to_the_image_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside.jpg").touch()
    (tmp_path / "root" / f"{NFD}.jpg").symlink_to(tmp_path / "outside.jpg")
    with pytest.raises(RecordError) as error:
        ImageRootGuard(f"{tmp_path}/root").check(f"{tmp_path}/root/{NFC}.jpg")
    assert error.value.reason is Reason.OUTSIDE_ROOT
