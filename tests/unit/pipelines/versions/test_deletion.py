"""Deletion of versions: what may not be deleted, and what goes on when a file cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.pipelines import versions as deletion
from recordmill.pipelines.versions import delete_old
from recordmill.schemas.errors import UsageError
from tests.unit.transforms.storage.birds import put
from tests.unprivileged import unprivileged


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        put(tmp_path / "birds" / version)
    return tmp_path / "birds"


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def newest_is_link(birds: Path) -> str:
    (birds / "9.0.0").symlink_to("1.2.0")
    return f"{birds}/9.0.0: is a link to {birds}/1.2.0"


def oldest_is_link(birds: Path) -> str:
    (birds / "1.0.0").rename(birds.parent / "moved")
    (birds / "1.0.0").symlink_to(birds.parent / "moved")
    return f"{birds}/1.0.0: is a link to {birds.parent}/moved"


def name_of_old_version(birds: Path) -> str:
    (birds / "stable").symlink_to("1.1.0")
    return f"{birds}/stable: is a link to {birds}/1.1.0"


def shard_of_kept_version(birds: Path) -> str:
    shard = next((birds / "1.2.0").glob("*.tfrecord*"))
    shard.unlink()
    shard.symlink_to(f"../1.0.0/{shard.name}")
    return f"{shard}: is a link to {birds}/1.0.0/{shard.name}"


def folder_of_kept_version(birds: Path) -> str:
    (birds / "1.2.0/records").rename(birds.parent / "records")
    (birds / "1.2.0/records").symlink_to(birds.parent / "records")
    return f"{birds}/1.2.0/records: is a link to {birds.parent}/records"


def foreign_file(birds: Path) -> str:
    (birds / "1.1.0/records/notes.txt").write_text("mine")
    return f"{birds}/1.1.0: contains 'records/notes.txt', which is not part of a dataset"


def foreign_file_in_folder_like_beams(birds: Path) -> str:
    folder = birds / "1.1.0" / ("beam-temp-x-" + "a" * 32)
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    return f"contains '{folder.name}/mine.txt', which is not part of a dataset"


LINKS = (
    *(newest_is_link, oldest_is_link, name_of_old_version, shard_of_kept_version),
    *(folder_of_kept_version, foreign_file, foreign_file_in_folder_like_beams),
)


@pytest.mark.parametrize("prepare", LINKS)
@pytest.mark.parametrize("dry_run", [True, False])
def test_links_and_foreign_files_prevent_any_deletion(
    prepare: Callable[[Path], str], dry_run: bool, birds: Path
) -> None:
    expected, before = prepare(birds), everything(birds)
    with pytest.raises(UsageError) as caught:
        delete_old(str(birds), 1, dry_run)
    assert expected in str(caught.value)
    assert everything(birds) == before


def test_a_link_to_a_version_that_stays_is_no_obstacle(birds: Path) -> None:
    (birds / "latest").symlink_to("1.2.0")
    (birds / "broken").symlink_to("nowhere")
    assert len(delete_old(str(birds), 1).deleted) == 2
    assert {path.name for path in birds.iterdir()} == {"1.2.0", "latest", "broken"}


def test_versions_that_changed_since_their_listing_are_not_deleted(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = deletion._check_links

    def publish_meanwhile(*arguments: object) -> None:
        check(*arguments)  # type: ignore[arg-type]
        put(birds / "1.3.0")

    monkeypatch.setattr(deletion, "_check_links", publish_meanwhile)
    with pytest.raises(UsageError, match="its versions have changed meanwhile"):
        delete_old(str(birds), 1)
    assert {path.name for path in birds.iterdir()} == {"1.0.0", "1.1.0", "1.2.0", "1.3.0"}


FOREIGN = ("upload.lock", "dvc.lock", "poetry.lock", ".x.lock", "..lock", "process.lock")


def test_only_locks_of_versions_are_touched(birds: Path) -> None:
    for name in FOREIGN:
        (birds / name).write_text("" if name == "upload.lock" else "process 1 on a host\nmine")
    for name in ("dir.lock", ".7.0.0.lock"):
        (birds / name).mkdir()
    (birds / ".8.0.0.lock").write_text("process 1 on a host that was killed\n")
    assert len(delete_old(str(birds), 1).deleted) == 2
    left = {path.name for path in birds.iterdir()}
    assert left == {"1.2.0", "dir.lock", ".7.0.0.lock", *FOREIGN}


def test_a_version_in_a_folder_that_is_not_writable_stays_whole(birds: Path) -> None:
    (birds / "1.0.0/records").chmod(0o555)
    before = everything(birds / "1.0.0")
    for dry_run in (True, False):
        with unprivileged():
            done = delete_old(str(birds), 1, dry_run)
        assert [Path(version.directory).name for version in done.deleted] == ["1.1.0"]
        assert list(map(str, done.problems)) == [
            f"{birds}/1.0.0/records: cannot be deleted: Permission denied. "
            "Let this user write in its folder, and run the command again."
        ]
    assert everything(birds / "1.0.0") == before
    (birds / "1.0.0/records").chmod(0o755)
    assert not delete_old(str(birds), 1).problems


def test_files_that_cannot_be_deleted_are_named_and_the_next_deletion_completes(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, shard = os.unlink, next((birds / "1.0.0").glob("*.tfrecord*"))

    def without_shard(path: str, *arguments: object, **more: object) -> None:
        if os.fspath(path) == str(shard):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, *arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", without_shard)
        done = delete_old(str(birds), 1)
        assert [Path(version.directory).name for version in done.deleted] == ["1.1.0"]
        assert str(done.problems[0]).startswith(f"{shard}: cannot be deleted: Operation not perm")
        assert everything(birds / "1.0.0") == sorted([shard.name, "manifest.json", "records"])
    done = delete_old(str(birds), 1)
    assert (done.deleted, done.completed, done.problems) == ((), (f"{birds}/1.0.0",), ())
    assert [path.name for path in birds.iterdir()] == ["1.2.0"]


def test_unreadable_versions_stay_and_do_not_count(birds: Path) -> None:
    (birds / "1.2.0").chmod(0)
    try:
        with unprivileged():
            done = delete_old(str(birds), 1)
    finally:
        (birds / "1.2.0").chmod(0o755)
    assert [Path(version.directory).name for version in done.deleted] == ["1.0.0"]
    assert "1.2.0: cannot be read: Permission denied" in str(done.problems[0])
    assert {path.name for path in birds.iterdir()} == {"1.1.0", "1.2.0"}
