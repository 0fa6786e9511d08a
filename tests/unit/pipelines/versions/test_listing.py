"""The versions of a dataset: published, unreadable and unfinished ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recordmill.pipelines.run.run_record import RunContext, running_record
from recordmill.pipelines.versions import list_versions
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.transforms.storage.published import newest_version
from tests.unit.transforms.storage.birds import put
from tests.unprivileged import unprivileged


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    for version in ("1.9.0", "1.10.0"):
        put(tmp_path / "birds" / version)
    return tmp_path / "birds"


def test_a_version_that_cannot_be_read_is_named_and_the_others_are_listed(birds: Path) -> None:
    put(birds / "1.2.0")
    put(birds / "1.3.0")
    (birds / "1.2.0/manifest.json").write_text("{}")
    (birds / "1.3.0").chmod(0)
    try:
        with unprivileged():
            listing = list_versions(str(birds))
    finally:
        (birds / "1.3.0").chmod(0o755)
    assert [Path(version.directory).name for version in listing.versions] == ["1.9.0", "1.10.0"]
    assert sorted(listing.unreadable) == ["1.2.0", "1.3.0"]
    messages = list(map(str, listing.unreadable.values()))
    assert f"{birds}/1.3.0: cannot be read: Permission denied." in messages[0]
    assert messages[1].startswith(f"{birds}/1.2.0/manifest.json: is not a manifest")


def test_an_unreadable_newest_version_does_not_resolve_to_an_older_one(birds: Path) -> None:
    for version, expected in (("1.9.0", f"{birds}/1.10.0"), ("1.10.0", None)):
        (birds / version).chmod(0)
        try:
            with unprivileged():
                if expected:
                    assert newest_version(birds) == expected
                else:
                    with pytest.raises(VerificationFailed, match=f"{version}: cannot be read"):
                        newest_version(birds)
        finally:
            (birds / version).chmod(0o755)


def test_unfinished_versions_are_those_with_any_mark_of_a_run(birds: Path) -> None:
    for version in ("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0"):
        shutil.copytree(birds / "1.9.0", birds / version)
        (birds / version / "_SUCCESS").unlink()
    (birds / "2.1.0/manifest.json").unlink()  # only shards
    record = running_record(RunContext.begin("")).to_json()
    (birds / "2.2.0/run.json").write_bytes(record)
    (birds / "2.3.0/run.json").write_bytes(b"damaged")
    shutil.rmtree(birds / "2.4.0")
    (birds / "2.4.0").mkdir()
    (birds / "2.4.0/notes.txt").write_text("foreign")
    (birds / ".2.5.0.run").mkdir()
    for foreign in (".birds.run", "..run", ".2.6.0.run.old", ".a.b.c.run"):
        (birds / foreign).mkdir()
    (birds / ".2.7.0.run").symlink_to(birds.parent)
    listing = list_versions(str(birds))
    assert listing.unfinished == ("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.5.0")
    half = [Path(contents.directory).name for contents in listing.half_deleted]
    assert half == ["2.0.0", "2.3.0"]
    record = json.loads(record) | {"state": "published"}
    (birds / "2.2.0/run.json").write_text(json.dumps(record))
    half = [Path(c.directory).name for c in list_versions(str(birds)).half_deleted]
    assert half == ["2.0.0", "2.2.0", "2.3.0"]


def test_a_published_version_whose_run_left_files_is_not_half_deleted(birds: Path) -> None:
    record = json.loads(running_record(RunContext.begin("")).to_json()) | {"state": "published"}
    for version in ("1.9.0", "1.10.0"):
        (birds / version / "run.json").write_text(json.dumps(record))
        (birds / f".{version}.run").mkdir()
    (birds / "1.9.0/manifest.json").write_text("damaged")
    listing = list_versions(str(birds))
    assert listing.unfinished == ("1.9.0", "1.10.0")
    assert listing.half_deleted == []


def test_an_unfinished_version_that_cannot_be_listed_is_unreadable(birds: Path) -> None:
    (birds / "1.9.0/_SUCCESS").unlink()
    (birds / "1.9.0/manifest.json").chmod(0)
    with unprivileged():
        listing = list_versions(str(birds))
    assert (list(listing.unreadable), listing.unfinished) == (["1.9.0"], ())


def test_a_folder_of_other_files_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "1.0.0").mkdir()
    (tmp_path / "1.0.0/notes.txt").write_text("mine")
    with pytest.raises(
        UsageError, match="has no published version; expected DIR/NAME, the folder of"
    ):
        list_versions(str(tmp_path))


def test_a_version_that_is_a_link_shares_its_files_with_itself_only(birds: Path) -> None:
    (birds / "3.0.0").symlink_to("1.10.0")
    versions = list_versions(str(birds)).versions
    assert [version.own_bytes for version in versions] == [version.bytes for version in versions]
