"""A draft gets its final name unless another attempt was faster; then both have to be the same.

In object stores: `tests/stores/test_objects.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.storage.drafts import Draft


def written(folder: Path, data: bytes) -> Draft:
    """Returns a draft of `shard` that holds some bytes."""
    draft = Draft(str(folder), "shard")
    Path(draft.path).parent.mkdir(exist_ok=True)
    Path(draft.path).write_bytes(data)
    return draft


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_draft_is_in_the_folder_for_temporary_files_until_it_is_committed(tmp_path: Path) -> None:
    draft = written(tmp_path, b"abc")
    assert Path(draft.path).parent == tmp_path / ".staging"
    assert draft.size == 3
    assert draft.commit() == {}
    assert files(tmp_path) == {"shard": b"abc"}


def test_a_second_attempt_with_the_same_bytes_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, b"abc").commit()
    before = (tmp_path / "shard").stat()
    written(tmp_path, b"abc").commit()
    after = (tmp_path / "shard").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert files(tmp_path) == {"shard": b"abc"}


def test_a_late_attempt_with_other_bytes_fails_and_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, b"abc").commit()
    with pytest.raises(RecordmillError, match=r"shard: another attempt has written it with other"):
        written(tmp_path, b"abd").commit()
    assert (tmp_path / "shard").read_bytes() == b"abc"


def test_what_an_earlier_run_has_left_is_replaced(tmp_path: Path) -> None:
    written(tmp_path, b"abc").commit()
    written(tmp_path, b"abd").commit(replaced={})
    assert files(tmp_path) == {"shard": b"abd"}


def test_an_attempt_that_is_later_than_its_run_creates_no_folder(tmp_path: Path) -> None:
    work, published = tmp_path / "run", tmp_path / "1.0.0"
    (work / ".staging").mkdir(parents=True)
    open_draft, draft = Draft(str(work), "records/shard"), Draft(str(work), "shard")
    with open_draft.open() as stream:
        work.rename(published)
        (published / ".staging" / Path(open_draft.path).name).unlink()
        stream.write(b"abc")
    ended = r"shard: not written, because the run's folder was renamed or deleted; expected the run"
    with pytest.raises(RecordmillError, match=ended):
        open_draft.commit()
    with pytest.raises(RecordmillError, match=ended):
        draft.open()
    assert files(tmp_path) == {}
    assert not work.exists()
