"""Versions of a dataset: their list, and the deletion of old ones."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.command import published, recordmill
from tests.versions.test_base_version import NEW, OLD, grown, table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a dataset: the second adds rows."""
    folder = tmp_path_factory.mktemp("versions")
    output = folder / "out"
    published(table(folder, "1.csv", range(20)), output, *OLD)
    grown(table(folder, "2.csv", range(30)), output, *NEW)
    return output / "birds"


@pytest.fixture
def birds(made: Path, tmp_path: Path) -> Path:
    """A copy of the versions, in which hard links are links to the same files as before."""
    shutil.copytree(made, tmp_path / "birds")
    for name in ("train", "test"):
        for shard in (made / "1.0.0").glob(f"birds-{name}.tfrecord-*"):
            for other in (made / "1.1.0").iterdir():
                if other.samefile(shard):
                    copy = tmp_path / "birds/1.1.0" / other.name
                    copy.unlink()
                    copy.hardlink_to(tmp_path / "birds/1.0.0" / shard.name)
    return tmp_path / "birds"


def sizes(version: Path) -> list[int]:
    return [file.stat().st_size for file in sorted(version.glob("birds-*.tfrecord-*"))]


def own(version: Path) -> int:
    files = [file.stat() for file in version.glob("birds-*.tfrecord-*")]
    return sum(found.st_size for found in files if found.st_nlink == 1)


def test_versions_are_listed_with_what_they_share(birds: Path) -> None:
    ended = recordmill("versions", birds, "--json")
    assert (ended.code, ended.err) == (0, "")
    expected = [
        {
            "version": name,
            "directory": str(birds / name),
            "records": records,
            "bytes": sum(sizes(birds / name)),
            "own_bytes": own(birds / name),
            "base": base,
        }
        for name, records, base in (("1.0.0", 20, None), ("1.1.0", 30, "1.0.0"))
    ]
    assert json.loads(ended.out) == {
        **{"state": "shown", "exit_code": 0, "message": ""},
        **{"versions": expected, "unreadable": [], "unfinished": []},
    }
    assert 0 < own(birds / "1.1.0") < sum(sizes(birds / "1.1.0"))
    (birds / ".1.2.0.run").mkdir()
    _, *lines, unfinished = recordmill("versions", birds).out.splitlines()
    assert [line.split()[:2] for line in lines] == [["1.0.0", "20"], ["1.1.0", "30"]]
    remedy = "(repeat its run, or complete its deletion by gc)"
    assert unfinished == f"unfinished: {birds}/1.2.0 {remedy}"


def test_a_chain_of_versions_is_compared_in_order(birds: Path) -> None:
    one, two = birds / "1.0.0", birds / "1.1.0"
    steps = [
        json.loads(recordmill("diff", *pair, "--json").out) for pair in ((one, two), (two, one))
    ]
    for step in steps:
        assert (step.pop("state"), step.pop("exit_code"), step.pop("message")) == (
            "different",
            3,
            "",
        )
    ended = recordmill("diff", one, two, one, "--json")
    assert (ended.code, ended.err) == (3, "")
    document = json.loads(ended.out)
    assert document == {
        **{"state": "different", "exit_code": 3, "message": ""},
        **{"equal": False, "steps": steps},
    }
    assert json.loads(recordmill("diff", birds, "--json").out)["steps"] == steps[:1]
    assert recordmill("diff", one, one, one).code == 0
    lines = [line.split() for line in recordmill("diff", one, two, one).out.splitlines()]
    assert lines == [
        ["dataset", "records", "same", "different", "moved", "gone", "new"],
        [str(one), "20"],
        [str(two), "30", "20", "0", "0", "0", "10"],
        [str(one), "20", "20", "0", "0", "10", "0"],
    ]


def test_a_chain_needs_two_versions(birds: Path) -> None:
    shutil.rmtree(birds / "1.0.0")
    ended = recordmill("diff", birds)
    assert (ended.code, ended.out) == (2, "")
    assert f"{birds}: expected two datasets, or a folder DIR/NAME with two or more" in ended.err


def test_old_versions_are_deleted_and_new_ones_stay_whole(birds: Path) -> None:
    text = f"{birds}/1.0.0 (20 records)\n"
    assert recordmill("gc", birds, "--keep", 1, "--dry_run").out == f"would be deleted: {text}"
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.0", "1.1.0"]
    assert recordmill("gc", birds, "--keep", 1).out == f"deleted: {text}"
    assert [path.name for path in birds.iterdir()] == ["1.1.0"]
    ended = recordmill("verify", birds / "1.1.0", "--decode", "--json")
    kinds = {"image": "bytes", "image/filename": "bytes", "label": "int64"}
    assert json.loads(ended.out)["features"] == kinds
    ended = recordmill("gc", birds, "--keep", 1)
    assert (ended.code, ended.out) == (0, f"nothing to delete: {birds} has at most 1 version\n")
    for flags, state in (["--dry_run"], "planned"), ([], "shown"):
        ended = recordmill("gc", birds, "--keep", 1, "--json", *flags)
        assert json.loads(ended.out)["state"] == state


def test_a_foreign_file_is_a_usage_error_and_nothing_is_deleted(birds: Path) -> None:
    (birds / "1.0.0/notes.txt").write_text("mine")
    before = sorted(birds.rglob("*"))
    ended = recordmill("gc", birds, "--keep", 1)
    assert (ended.code, ended.out) == (2, "")
    assert f"{birds}/1.0.0: contains 'notes.txt', which is not part of a dataset" in ended.err
    assert sorted(birds.rglob("*")) == before


def test_nothing_is_deleted_while_a_run_writes_a_version(birds: Path) -> None:
    with open(birds / ".1.2.0.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ended = recordmill("gc", birds, "--keep", 1)
    assert ended.code == 5
    assert f"{birds}: another run is writing it" in ended.err
    assert (birds / "1.0.0/_SUCCESS").exists()


@pytest.mark.parametrize("keep", ["0", "-1", "x", "²"])
def test_the_number_to_keep_is_above_0(keep: str, birds: Path) -> None:
    ended = recordmill("gc", birds, f"--keep={keep}")
    assert (ended.code, ended.out) == (2, "")
    assert f"argument --keep: expected a number above 0, got {keep!r}" in ended.err


def test_a_folder_without_versions_is_a_usage_error(tmp_path: Path) -> None:
    for command in (("versions", tmp_path), ("gc", tmp_path, "--keep", "1")):
        ended = recordmill(*command)
        assert (ended.code, ended.out) == (2, "")
        assert (
            f"{tmp_path}: has no published version; expected DIR/NAME, the folder of one dataset."
            in ended.err
        )
