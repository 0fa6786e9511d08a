"""Records are removed from a dataset in a store: by copies of objects, as there are no links."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from recordmill.pipelines import graph, publish
from tests.end_to_end import readers
from tests.end_to_end.command import recordmill
from tests.stores.conftest import FLAGS
from tests.stores.kinds import Store


def traces(gallery: Path, keys: list[str], folder: Path) -> set[tuple[str, str]]:
    """Returns (file, key) of each file with bytes, the digest or the key of a removed image."""
    found, paths = set(), [path for path in folder.rglob("*") if path.is_file()]
    for key in keys:
        data = (gallery / key).read_bytes()
        signs = (data[len(data) // 2 :], hashlib.sha256(data).hexdigest().encode(), key.encode())
        for path in paths:
            content = b"" if path.name == "removal.json" else path.read_bytes()
            if any(sign in content for sign in signs):
                found.add((path.relative_to(folder).as_posix(), key))
    return found


def test_removed_and_purged_images_are_in_no_object(
    s3_store: Store, local: Path, gallery: Path, tmp_path: Path
) -> None:
    s3_store.upload(local, "forget/birds/1.0.0")
    keys = [f"images/{n % 4}/a #{n:03d} ü.jpg" for n in (1, 46, 202)]
    (tmp_path / "keys.txt").write_text("\n".join(keys), "utf-8")
    where = f"{s3_store.root}/forget/birds"
    command = ("forget", where, "--keys", tmp_path / "keys.txt", "--purge", "--json")
    ended = recordmill(*command, *s3_store.flags)
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert (document["removed"], document["directory"]) == (3, f"{where}/1.0.1")
    assert [holder["version"] for holder in document["purged"]] == ["1.0.0"]
    assert recordmill("verify", where, *s3_store.reading_flags).code == 0
    here = s3_store.download("forget/birds", tmp_path / "here")
    assert {path.name for path in here.iterdir()} == {"1.0.1"}
    before, after = readers.splits(local), readers.splits(here / "1.0.1")
    assert after == {split: kept - set(keys) for split, kept in before.items()}
    assert traces(gallery, keys, here) == set()


def test_files_of_unfinished_runs_are_listed_and_purged(
    s3_store: Store, local: Path, gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_store.upload(local, "leftovers/birds/1.0.0")
    where = f"{s3_store.root}/leftovers/birds"
    table = ("--input", gallery / "labels.csv", "--name", "birds", *FLAGS, *s3_store.flags)
    convert = ("convert", "--output", f"{s3_store.root}/leftovers", *table)
    failed = recordmill(*convert, "--version", "1.1.0", "--max_rejects", "2")
    assert failed.code == 4
    with monkeypatch.context() as patch:  # as a run ends whose last worker is lost
        patch.setattr(graph, "publish", lambda *_: 1 / 0)
        assert recordmill(*convert, "--version", "1.2.0").code == 1
        replacing = ("--version", "1.0.0", "--if_exists", "replace")
        assert recordmill(*convert, *replacing).code == 1

    (tmp_path / "keys.txt").write_text(key := "images/0/a #000 ü.png")
    forget = ("forget", where, "--keys", tmp_path / "keys.txt", "--json", *s3_store.flags)
    ended = recordmill(*forget)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["unfinished"] == ["1.0.0", "1.1.0", "1.2.0"]
    here = s3_store.download("leftovers/birds", tmp_path / "before")
    holding = {name.partition("/")[0] for name, _ in traces(gallery, [key], here)}
    assert holding == {".1.0.0.run", "1.0.0", "1.1.0", "1.2.0"}  # shards to resume from

    ended = recordmill(*forget, "--allow_missing", "--purge")
    assert ended.code == 0, ended.err
    after = s3_store.download("leftovers/birds", tmp_path / "after")
    assert {path.name for path in after.iterdir()} == {"1.0.1"}
    assert traces(gallery, [key], after) == set()


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0"], ids=["replaced", "new"])
def test_a_run_whose_files_are_purged_while_it_is_active_publishes_nothing(
    version: str,
    s3_store: Store,
    local: Path,
    gallery: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stores have no locks: the purge cannot know that the run is active."""
    folder = f"purged-{version}"
    s3_store.upload(local, f"{folder}/birds/1.0.0")
    where = f"{s3_store.root}/{folder}/birds"
    (tmp_path / "keys.txt").write_text("images/0/a #000 ü.png")
    flags = ("--keys", tmp_path / "keys.txt", "--version", "2.0.0", "--purge", *s3_store.flags)
    check = publish._check_publishable

    def purge_meanwhile(*arguments: object) -> None:
        monkeypatch.setattr(publish, "_check_publishable", check)
        assert recordmill("forget", where, *flags).code == 0
        check(*arguments)

    monkeypatch.setattr(publish, "_check_publishable", purge_meanwhile)
    table = ("--input", gallery / "labels.csv", "--name", "birds", *FLAGS, *s3_store.flags)
    replacing = ("--version", version, "--if_exists", "replace", "--no_report")
    ended = recordmill("convert", "--output", f"{s3_store.root}/{folder}", *table, *replacing)
    assert ended.code == 1, ended.err
    assert "has been deleted, so nothing is published" in ended.err
    names = s3_store.names(f"{folder}/")
    assert {name.split("/")[2] for name in names if name.endswith("/_SUCCESS")} == {"2.0.0"}
    others = [name.split("/")[-1] for name in names if not name.startswith(f"{folder}/birds/2.")]
    assert set(others) <= {"run.json"}
