"""Versions, commit markers and manifests of published datasets."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path

import pytest

from recordmill.schemas import layout
from recordmill.schemas.errors import VerificationFailed
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.published import (
    commit_marker,
    current_folder,
    find_manifest,
    newest_version,
    published_versions,
    read_manifest,
)
from tests.unit.transforms.storage.birds import failing, put, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "1.0.0")


def test_the_newest_version_is_by_number_and_published(tmp_path: Path) -> None:
    for version in ("1.9.0", "1.10.0", "2.0.0", "3.0.0-draft"):
        put(tmp_path / version)
    (tmp_path / "2.0.0" / "_SUCCESS").unlink()
    assert published_versions(str(tmp_path)) == ["1.9.0", "1.10.0"]
    assert newest_version(tmp_path) == newest_version(f"{tmp_path}/") == f"{tmp_path}/1.10.0"
    assert newest_version(tmp_path / "1.9.0") == f"{tmp_path}/1.9.0"
    assert newest_version(tmp_path / "none") == f"{tmp_path}/none"
    assert newest_version(tmp_path / "1.9.0/_SUCCESS") == f"{tmp_path}/1.9.0/_SUCCESS"
    assert failing(DatasetFolder.open, tmp_path).endswith(
        "recordmill convert has published. It has the versions 1.9.0, 1.10.0"
    )
    for missing in ("1.11.0", "2.0.0"):
        assert failing(DatasetFolder.open, tmp_path / missing).endswith(
            "recordmill convert has published. The newest published version is 1.10.0"
        )
    assert failing(DatasetFolder.open, tmp_path / "none").endswith(
        "recordmill convert has published"
    )


def test_only_committed_datasets_are_opened(folder: Path) -> None:
    (folder / "_SUCCESS").write_bytes(b"")
    assert failing(DatasetFolder.open, folder) == (
        f"{folder}/manifest.json: does not match the checksum in _SUCCESS. "
        "Convert again, or restore it from a backup."
    )
    assert not read_manifest(str(folder))[2]
    assert find_manifest(str(folder)) == (DatasetFolder.open_unchecked(folder).manifest, False)
    (folder / "_SUCCESS").unlink()
    assert failing(DatasetFolder.open, folder).startswith(
        f"{folder}: not a published dataset: it has no _SUCCESS; expected "
    )
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "manifest.json").unlink()
    assert failing(DatasetFolder.open, folder).startswith(f"{folder}/manifest.json: is missing. ")
    assert find_manifest(str(folder)) == (None, False)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("is_valid", [True, False])
def test_garbage_collection_is_restored(folder: Path, collects: bool, is_valid: bool) -> None:
    if not is_valid:
        (folder / layout.MANIFEST).write_text("{}")
    try:
        if not collects:
            gc.disable()
        with nullcontext() if is_valid else pytest.raises(VerificationFailed):
            DatasetFolder.open(folder)
        assert gc.isenabled() is collects
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("version", "writer", "remedy"),
    [
        (b"1", "recordmill 0.1.0", "Convert again"),
        (b"3", "a newer recordmill", "Update recordmill"),
    ],
)
def test_the_recordmill_of_another_format_is_named(folder: Path, version, writer, remedy) -> None:
    path = folder / "manifest.json"
    document = path.read_bytes().replace(b'_version": 2', b'_version": ' + version, 1)
    write(path, document[:-3] + b', "a": 1}')
    write(folder / "_SUCCESS", commit_marker(path.read_bytes()))
    assert failing(DatasetFolder.open, folder) == (
        f"{path}: was written by {writer}, whose datasets this version does not read. {remedy}."
    )
    assert find_manifest(str(folder)) == (None, True)


def test_a_dataset_moved_by_an_interrupted_run_is_found(tmp_path: Path) -> None:
    moved = put(tmp_path / "birds/.1.0.0.run/replaced")
    assert current_folder(str(tmp_path / "birds/1.0.0")) == str(moved)
    assert current_folder(str(moved)) == str(moved)
    assert current_folder("s3://b/birds/1.0.0") == "s3://b/birds/1.0.0"
