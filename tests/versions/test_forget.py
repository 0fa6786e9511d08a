"""A version without some records: no byte of them is left, as its certificate states."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import recordmill as api
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.images import jpeg
from tests.unprivileged import unprivileged

GONE = ("photo-03.jpg", "photo-10.jpg", "photo-17.jpg", "photo-39.jpg")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images; "photo-39.jpg" is the only one of its split, shard and class."""
    folder = tmp_path_factory.mktemp("forget")
    lines = ["image,label,split"]
    for i in range(40):
        name = f"photo-{i:02d}.jpg"
        (folder / name).write_bytes(jpeg(80, 60, seed=i))
        lines.append(f"{name},{'bcd'[i % 3] if i < 39 else 'a'},{'train' if i < 39 else 'test'}")
    (folder / "photos.csv").write_text("\n".join(lines) + "\n")
    (folder / "keys.txt").write_text("\r\n".join(GONE) + "\r\n\r\n")
    flags = ("--split_column", "split", "--num_shards", "train=8,test=1", "--report", "--index")
    published(folder / "photos.csv", folder / "out", *flags)
    return folder


@pytest.fixture
def birds(made: Path, tmp_path: Path) -> Path:
    """A copy of the dataset's folder."""
    shutil.copytree(made / "out/birds", tmp_path / "birds")
    return tmp_path / "birds"


@pytest.fixture(scope="module")
def without(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The dataset with a version without the images of `GONE`, and what the command has printed."""
    birds = tmp_path_factory.mktemp("without") / "birds"
    shutil.copytree(made / "out/birds", birds)
    return birds, forget(birds, made / "keys.txt")


@pytest.fixture
def forgotten(without: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of both versions, which share unchanged shards by hard links."""
    subprocess.run(["cp", "-a", without[0], tmp_path / "birds"], check=True)
    return tmp_path / "birds"


def forget(birds: Path, keys: Path, *flags: object) -> dict[str, Any]:
    ended = recordmill("forget", birds, "--keys", keys, "--json", *flags)
    assert ended.code == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    return document


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def traces(made: Path, folder: Path) -> set[tuple[str, str]]:
    """Returns (file, key) of each file with bytes, the digest or the key of a removed image."""
    found = set()
    for key in GONE:
        data = (made / key).read_bytes()
        middle = data[len(data) // 2 :][:60]
        signs = (
            middle,
            *(base64.b64encode(data)[n : n + 80] for n in (400, 800)),
            hashlib.sha256(data).hexdigest().encode(),
            key.encode(),
        )
        for name, content in files(folder).items():
            if not name.endswith("removal.json") and any(sign in content for sign in signs):
                found.add((name, key))
    return found


def test_no_byte_of_removed_images_is_left_and_the_rest_is_unchanged(
    made: Path, without: tuple[Path, dict[str, Any]]
) -> None:
    birds, document = without
    assert {key for _, key in traces(made, birds / "1.0.0")} == set(GONE)  # the search finds them
    old, new = birds / "1.0.0", birds / "1.0.1"
    assert document["directory"] == str(new)
    assert (document["removed"], document["similar"]) == (4, [])
    assert [(holder["version"], holder["records"]) for holder in document["holders"]] == [
        ("1.0.0", 4)
    ]
    assert traces(made, new) == set()
    assert recordmill("verify", new, "--decode").code == 0
    # Class ids, the split, its shard, and the order of all other records stay.
    assert (new / "label.labels.txt").read_text().split() == ["a", "b", "c", "d"]
    splits = json.loads((new / "manifest.json").read_bytes())["splits"]
    assert (splits["test"]["records"], len(splits["test"]["shards"])) == (0, 1)
    assert len(splits["train"]["shards"]) == 8
    kept = [key for key in readers.keys(old, "train") if key not in GONE]
    assert readers.keys(new, "train") == kept
    assert splits["test"]["classes"] == {"label": {}}
    changed = {row["shard"] for row in readers.index_rows(old, "train") if row["key"] in GONE}
    for number, shard in enumerate(readers.shards(old, "train")):
        assert (new / shard.name).samefile(shard) == (number not in changed)
    report = (new / "report.html").read_text()
    assert "data:image/jpeg" in report  # of the records that are left
    assert "This version is 1.0.0 without some records" in report
    assert "Repeat the run" not in report


def test_the_certificate_states_what_was_removed(made: Path, birds: Path) -> None:
    forget(birds, made / "keys.txt", "--version", "2.0.0")
    removal = json.loads((birds / "2.0.0/removal.json").read_bytes())
    manifest = json.loads((birds / "1.0.0/manifest.json").read_bytes())
    digests = [hashlib.sha256((made / key).read_bytes()).hexdigest() for key in GONE]
    assert removal["keys_sha256"] == sorted(hashlib.sha256(k.encode()).hexdigest() for k in GONE)
    assert removal["images_sha256"] == sorted(digests)
    assert (removal["base_version"], removal["version"]) == ("1.0.0", "2.0.0")
    assert (removal["records"], removal["remaining_records"]) == (4, 36)
    before = {
        s["file"]: s["sha256"] for part in manifest["splits"].values() for s in part["shards"]
    }
    for pair in removal["shards"]:
        assert before[pair["before"]["file"]] == pair["before"]["sha256"]
        data = (birds / "2.0.0" / pair["after"]["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == pair["after"]["sha256"]


def replace_certificate(dataset: Path, removal: dict[str, Any]) -> None:
    """Replaces the certificate, with the checksums that protect it."""
    data = json.dumps(removal).encode()
    (dataset / "removal.json").write_bytes(data)
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    manifest["sidecars"]["removal.json"] = hashlib.sha256(data).hexdigest()
    document = json.dumps(manifest).encode()
    (dataset / "manifest.json").write_bytes(document)
    (dataset / "_SUCCESS").write_text(hashlib.sha256(document).hexdigest() + "\n")


def test_a_forged_certificate_is_found(made: Path, forgotten: Path) -> None:
    dataset = forgotten / "1.0.1"
    removal = json.loads((dataset / "removal.json").read_bytes())
    whole = (dataset / "removal.json").read_bytes()
    (dataset / "removal.json").write_bytes(whole + b" ")
    assert "removal.json: is not the published file" in recordmill("verify", dataset).err
    present = hashlib.sha256(b"photo-00.jpg").hexdigest()
    image = hashlib.sha256((made / "photo-00.jpg").read_bytes()).hexdigest()
    shards = [*removal["shards"]]
    shards[0] = {**shards[0], "after": {**shards[0]["after"], "sha256": "0" * 64}}
    for change, problem in (
        ({"keys_sha256": [present, *removal["keys_sha256"][1:]]}, "its key 'photo-00.jpg' is one"),
        ({"images_sha256": [image]}, "its image is one that removal.json states as removed"),
        ({"base_version": "0.9.0"}, "states the base version 0.9.0, but the manifest has 1.0.0"),
        ({"records": 3}, "states removed records: 3, but the manifest has 4"),
        ({"shards": shards}, "states the shard birds-"),
        ({"records": "x"}, "is not a certificate: at records"),
    ):
        replace_certificate(dataset, removal | change)
        ended = recordmill("verify", dataset)
        assert ended.code == 3
        assert problem in ended.err
    replace_certificate(dataset, removal)
    assert recordmill("verify", dataset).code == 0


def test_purge_leaves_no_byte_on_disk(made: Path, birds: Path) -> None:
    document = forget(birds, made / "keys.txt", "--purge")
    assert [holder["version"] for holder in document["purged"]] == ["1.0.0"]
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.1"]
    assert traces(made, birds) == set()
    assert recordmill("verify", birds).code == 0


def test_the_function_does_what_the_command_does(
    birds: Path, without: tuple[Path, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    other, document = without
    capfd.readouterr()
    done = api.forget(birds, GONE)
    assert tuple(capfd.readouterr()) == ("", "")
    assert (done.directory, done.removed, done.records) == (str(birds / "1.0.1"), 4, 36)
    assert (done.folder, done.source) == (str(birds), str(birds / "1.0.0"))
    assert done.certificate == str(birds / "1.0.1/removal.json")
    assert (done.removed, list(done.similar)) == (document["removed"], document["similar"])
    held = [(holder.version.manifest.version, holder.records) for holder in done.holders]
    assert held == [(holder["version"], holder["records"]) for holder in document["holders"]]
    shards = [path.name for path in readers.shards(birds / "1.0.1", "train")]
    for name in shards:
        assert (birds / "1.0.1" / name).read_bytes() == (other / "1.0.1" / name).read_bytes()

    # A single key, and a purge; then a purge of keys that nobody has.
    again = api.forget(birds / "1.0.1", "photo-00.jpg", version="3.0.0", purge=True)
    assert [holder.version.manifest.version for holder in again.holders] == ["1.0.0", "1.0.1"]
    assert sorted(path.name for path in birds.iterdir()) == ["3.0.0"]
    none = api.forget(birds, GONE, allow_missing=True, purge=True)
    assert (none.directory, none.removed, none.certificate) == (str(birds / "3.0.0"), 0, None)


def test_the_function_raises_the_errors_of_the_command(
    made: Path, birds: Path, tmp_path: Path
) -> None:
    os.link(next(iter(readers.shards(birds / "1.0.0", "test"))), tmp_path / "backup")
    for arguments, message in (
        ({"keys": []}, "keys: is empty; expected the keys of records. Add some."),
        ({"keys": "nobody"}, f"{birds}/1.0.0: has no record with 1 of the keys"),
        ({"keys": "photo-00.jpg", "version": "0.1.0"}, "--version 0.1.0: expected a version after"),
        (
            {"keys": "photo-00.jpg", "beam_options": {"no_wait_until_finish": True}},
            "--no_wait_until_finish: forget() waits for the job. Remove the option.",
        ),
    ):
        with pytest.raises(api.UsageError) as caught:
            api.forget(birds, **arguments)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)
    with pytest.raises(
        api.VerificationFailed, match="1 deleted shard, with removed records, linked"
    ):
        api.forget(birds, GONE, purge=True)
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.1"]


def test_files_of_unfinished_runs_are_listed_and_purged(
    made: Path, birds: Path, tmp_path: Path
) -> None:
    failed = made / "failed.csv"
    head, *rows = (made / "photos.csv").read_text().splitlines(keepends=True)
    failed.write_text("".join([head, *rows, "missing.jpg,a,train\n"]))
    new = made / "new.csv"
    new.write_text(f"{head}missing.jpg,a,train\n")
    flags = ("--output", birds.parent, "--name", "birds", "--split_column", "split")
    links = ("--base", birds / "1.0.0", "--append")  # a run has hard links to shards of its base
    for version, table, others in (("1.1.0", failed, ()), ("1.2.0", new, links)):
        ended = recordmill("convert", "--input", table, *flags, "--version", version, *others)
        assert ended.code == 4
    linked = {path.stat().st_ino for path in (birds / ".1.2.0.run").rglob("*.tfrecord*")}
    assert linked & {path.stat().st_ino for path in (birds / "1.0.0").glob("*.tfrecord*")}
    names = {path.name for path in birds.iterdir()}
    assert names == {"1.0.0", "1.1.0", ".1.1.0.run", "1.2.0", ".1.2.0.run"}
    shutil.rmtree(birds / "1.2.0")  # as a run leaves it that was killed
    document = forget(birds, made / "keys.txt")
    assert document["unfinished"] == ["1.1.0", "1.2.0"]
    (tmp_path / "one").write_text("photo-00.jpg\n")
    ended = recordmill("forget", birds, "--keys", tmp_path / "one")
    assert "outside" not in ended.err
    assert f"may have them: files of an unfinished run of {birds}/1.1.0\n" in ended.out
    (birds / ".1.1.0.run/notes.txt").write_text("mine")
    keys = ("--keys", made / "keys.txt", "--allow_missing", "--purge")
    ended = recordmill("forget", birds, *keys)
    assert ended.code == 2
    assert "contains 'notes.txt', which is not part of a dataset" in ended.err
    assert f"may have them: files of an unfinished run of {birds}/1.1.0\n" in ended.out
    assert f"deleted: files of an unfinished run of {birds}/1.2.0\n" in ended.out
    (birds / ".1.1.0.run/notes.txt").unlink()
    ended = recordmill("forget", birds, *keys)
    assert ended.code == 0, ended.err
    assert f"deleted: files of an unfinished run of {birds}/1.1.0\n" in ended.out
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.1", "1.0.2"]
    assert traces(made, birds) == set()


def test_a_version_that_cannot_be_read_is_named_and_fails_the_command(
    made: Path, forgotten: Path
) -> None:
    birds, keys = forgotten, ("--keys", made / "keys.txt")
    (birds / "1.0.0").chmod(0)
    try:
        for flags in ((), ("--purge",)):
            with unprivileged():
                ended = recordmill("forget", birds, *keys, *flags)
            assert ended.code == 3
            assert f"{birds}/1.0.0: cannot be read: Permission denied." in ended.err
            assert "nothing to remove" in ended.out
    finally:
        (birds / "1.0.0").chmod(0o755)
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.0", "1.0.1"]


def test_half_deleted_versions_are_purged_by_a_repeated_command(
    made: Path, forgotten: Path
) -> None:
    """A purge that is killed after publishing is repeated with the same keys."""
    birds = forgotten
    for name in ("run.json", "_SUCCESS"):
        (birds / "1.0.0" / name).unlink()
    document = forget(birds, made / "keys.txt")
    assert (document["unfinished"], document["holders"]) == (["1.0.0"], [])
    document = forget(birds, made / "keys.txt", "--purge")
    assert (document["state"], document["unfinished"]) == ("skipped", ["1.0.0"])
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.1"]
    assert traces(made, birds) == set()


def test_a_repeated_command_finds_removed_images_under_other_keys(made: Path, birds: Path) -> None:
    """Only if its keys are those of the certificate, which does not state whose an image is."""
    (made / "again.jpg").write_bytes((made / GONE[0]).read_bytes())
    (made / "again.csv").write_text("image,label,split\nagain.jpg,b,train\n")
    (birds / "1.0.0").rename(birds / "1.0.0-other")
    published(made / "again.csv", birds.parent, "--split_column", "split", "--version", "0.9.0")
    (birds / "1.0.0-other").rename(birds / "1.0.0")
    (made / "one.txt").write_text(f"{GONE[0]}\n")
    (made / "two.txt").write_text(f"{GONE[1]}\n")
    for _ in range(2):
        found = forget(birds, made / "one.txt")["holders"]
        held = {holder["version"]: holder["records"] for holder in found}
        assert held == {"0.9.0": 1, "1.0.0": 1}
    forget(birds, made / "two.txt")
    found = forget(birds, made / "two.txt")["holders"]
    assert [holder["version"] for holder in found] == ["1.0.0", "1.0.1"]


def test_a_purge_goes_on_where_a_version_cannot_be_deleted(made: Path, birds: Path) -> None:
    (birds / "1.0.0/records").chmod(0o555)
    for name in (".birds.run", ".notes.run", "dvc.lock"):
        (birds / name).mkdir()
        (birds / name / "mine.txt").write_text("mine")
    try:
        with unprivileged():
            ended = recordmill("forget", birds, "--keys", made / "keys.txt", "--purge")
    finally:
        (birds / "1.0.0/records").chmod(0o755)
    assert ended.code == 2
    assert f"{birds}/1.0.0/records: cannot be deleted: Permission denied." in ended.err
    assert f"published {birds}/1.0.1 (36 records)" in ended.out
    assert f"still has them: {birds}/1.0.0 (4 of these records)" in ended.out
    assert recordmill("verify", birds / "1.0.0").code == 0
    document = forget(birds, made / "keys.txt", "--purge")
    assert [holder["version"] for holder in document["purged"]] == ["1.0.0"]
    foreign = {".birds.run", ".notes.run", "dvc.lock"}
    assert {path.name for path in birds.iterdir()} == {"1.0.1", *foreign}


def test_a_link_among_the_versions_is_named_after_publishing(made: Path, birds: Path) -> None:
    (birds / "0.9.0").symlink_to("1.0.0")
    ended = recordmill("forget", birds, "--keys", made / "keys.txt", "--purge", "--json")
    assert ended.code == 2
    document = json.loads(ended.out)
    assert f"{birds}/0.9.0: is a link to {birds}/1.0.0" in document["message"]
    assert document["purged"] == []
    assert [holder["version"] for holder in document["holders"]] == ["1.0.0", "1.0.0"]
    assert recordmill("verify", birds / "1.0.0").code == 0


def test_a_hard_link_elsewhere_is_reported_and_fails_a_purge(
    made: Path, birds: Path, tmp_path: Path
) -> None:
    shard = next(s for s in readers.shards(birds / "1.0.0", "test"))
    os.link(shard, tmp_path / "backup")
    ended = recordmill("forget", birds, "--keys", made / "keys.txt", "--purge")
    assert ended.code == 3
    assert f"{shard}: has 1 hard link outside of this dataset" in ended.err
    assert f"-inum {(tmp_path / 'backup').stat().st_ino}" in ended.err


def test_rows_with_removed_keys_are_rejected_from_then_on(made: Path, birds: Path) -> None:
    forget(birds, made / "keys.txt", "--purge")
    (made / "new.jpg").write_bytes(jpeg(80, 60, seed=40))
    for version, base, row in (("1.1.0", "1.0.1", 0), ("1.2.0", "1.1.0", 1)):
        (made / "day.csv").write_text(f"image,label,split\n{GONE[row]},b,train\nnew.jpg,b,train\n")
        asked = (
            "--version",
            version,
            "--base",
            birds / base,
            "--append",
            "--split_column",
            "split",
        )
        if row == 0:
            ended = convert(made / "day.csv", birds.parent, *asked)
            assert ended.code == 4
            assert (
                "day.csv:2: removed_key: was removed from an earlier version by forget. "
                "Remove the row, or pass --max_rejects removed_key=100%."
            ) in ended.err
        asked += ("--max_rejects", "removed_key=100%")
        ended = convert(made / "day.csv", birds.parent, *asked)
        assert ended.code == 0, ended.err
        found = readers.splits(birds / version)
        assert found["train"] == {f"photo-{i:02d}.jpg" for i in range(39)} - {*GONE} | {"new.jpg"}
    whole = ("--version", "2.0.0", "--base", birds / "1.2.0", "--split_column", "split")
    ended = convert(made / "photos.csv", birds.parent, *whole, "--max_rejects", "removed_key=4")
    assert ended.code == 0, ended.err
    assert json.loads((birds / "2.0.0/manifest.json").read_bytes())["input"]["rejected"] == 4


@pytest.mark.parametrize("base", [(), ("--base", "birds/1.0.0")], ids=["without", "older"])
def test_a_run_without_the_version_that_lacks_the_keys_warns(
    base: tuple[str, ...], made: Path, forgotten: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(forgotten.parent)
    ended = convert(
        made / "photos.csv", ".", "--version", "1.1.0", "--split_column", "split", *base, "--json"
    )
    assert ended.code == 0, ended.err
    [finding] = [f for f in json.loads(ended.out)["findings"] if f["kind"] == "forgotten_keys"]
    text = "./birds/1.0.1 was made without 4 keys that recordmill forget had removed; "
    assert finding["text"] == f"{text}this version has them again if the input does"
    hint = "To leave them out, set --base ./birds/1.0.1, or forget them in this version, too."
    assert (finding["severity"], finding["hint"]) == ("warning", hint)
    if base:
        return
    # From then on, the newest version states them no more, and nothing else is compared.
    again = convert(made / "photos.csv", ".", "--version", "1.2.0", "--split_column", "split")
    assert (again.code, "forgotten" in again.err) == (0, False)


def test_copies_that_remain_are_listed(made: Path, tmp_path: Path) -> None:
    for name, source in (("a.jpg", 0), ("b.jpg", 0), ("c.jpg", 1)):
        shutil.copy(made / f"photo-{source:02d}.jpg", tmp_path / name)
    (tmp_path / "t.csv").write_text("image,label\na.jpg,x\nb.jpg,x\nc.jpg,x\n")
    (tmp_path / "keys.csv").write_text("id,person\na.jpg,1\n")
    birds = published(tmp_path / "t.csv", tmp_path / "out").parent
    document = forget(birds, tmp_path / "keys.csv", "--column", "id")
    same = {"key": "b.jpg", "split": "train", "distance": 0, "is_same": True}
    digest = hashlib.sha256((tmp_path / "b.jpg").read_bytes()).hexdigest()
    assert document["similar"] == [{**same, "sha256": digest}]
    removal = json.loads((birds / "1.0.1/removal.json").read_bytes())
    assert removal["images_sha256"] == []
    assert len(removal["remaining_images_sha256"]) == 1
    assert recordmill("verify", birds).code == 0


def test_another_image_that_remains_in_a_record_is_listed(made: Path, tmp_path: Path) -> None:
    """Two pairs share the right image, which is none by which records are compared."""
    (tmp_path / "stereo.yaml").write_text(
        "name: stereo\nimage: {column: left}\nfeatures:\n"
        '  left: {kind: bytes, from: "image:bytes"}\n'
        '  right: {kind: bytes, from: "image:right/bytes"}\n'
    )
    photos = [made / f"photo-{number:02d}.jpg" for number in (0, 5, 9)]
    rows = "".join(f"{left},{photos[2]}\n" for left in photos[:2])
    (tmp_path / "t.csv").write_text(f"left,right\n{rows}")
    (tmp_path / "keys.txt").write_text(f"{photos[0]}\n")
    flags = ("--schema", tmp_path / "stereo.yaml", "--no_report")
    birds = published(tmp_path / "t.csv", tmp_path / "out", *flags).parent
    document = forget(birds, tmp_path / "keys.txt")
    digests = [hashlib.sha256(photo.read_bytes()).hexdigest() for photo in photos]
    same = {"key": str(photos[1]), "split": "train", "distance": 0, "is_same": True}
    assert document["similar"][0] == {**same, "sha256": digests[2]}
    removal = json.loads((birds / "1.0.1/removal.json").read_bytes())
    assert removal["images_sha256"] == digests[:1]
    assert removal["remaining_images_sha256"] == digests[2:]
    assert recordmill("verify", birds).code == 0


def test_a_frame_that_remains_in_another_sequence_is_listed(made: Path, tmp_path: Path) -> None:
    """Overlapping clips share a frame; so do their beginnings, which are too flat to be hashed."""
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "flat.png")
    shared = [tmp_path / "flat.png", made / "photo-01.jpg"]
    clips = {
        "a": [shared[0], made / "photo-00.jpg", shared[1]],
        "b": [*shared, made / "photo-02.jpg"],
        "c": [made / "photo-04.jpg"],
    }
    numbered = [(clip, i, path) for clip, paths in clips.items() for i, path in enumerate(paths)]
    rows = "".join(f"{path},{clip},{i},x\n" for clip, i, path in numbered)
    (tmp_path / "t.csv").write_text(f"image,sequence,frame,label\n{rows}")
    (tmp_path / "keys.txt").write_text("a\n")
    flags = ("--schema", "image_sequence", "--no_report")
    birds = published(tmp_path / "t.csv", tmp_path / "out", *flags).parent
    document = forget(birds, tmp_path / "keys.txt")
    digests = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in shared)
    same = {"key": "b", "split": "train", "distance": 0, "is_same": True}
    assert document["similar"] == [{**same, "sha256": digest} for digest in digests]
    removal = json.loads((birds / "1.0.1/removal.json").read_bytes())
    assert removal["images_sha256"] == [hashlib.sha256(clips["a"][1].read_bytes()).hexdigest()]
    assert removal["remaining_images_sha256"] == digests
    assert recordmill("verify", birds).code == 0


def test_a_version_of_forget_is_not_taken_for_that_of_a_conversion(
    made: Path, forgotten: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = {"output": forgotten.parent, "name": "birds", "version": "1.0.1"}
    api.convert(made / "photos.csv", **there, if_exists="skip")
    assert [record.getMessage() for record in caplog.records] == [
        f"{forgotten}/1.0.1: was published by recordmill forget: its rows are not those of this "
        f"command. Choose a later --version, and --base {forgotten}/1.0.1, without the removed "
        "records."
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_unknown_keys_are_a_usage_error_unless_they_may_be_missing(
    birds: Path, tmp_path: Path
) -> None:
    table = pa.table({"id": ["photo-00.jpg", "nobody", None]})
    pq.write_table(table, tmp_path / "keys.parquet")
    keys = ("--keys", tmp_path / "keys.parquet", "--column", "id")
    ended = recordmill("forget", birds, *keys)
    assert (ended.code, ended.out) == (2, "")
    assert "has no record with 1 of the keys in --keys:\n  'nobody'" in ended.err
    assert not (birds / "1.0.1").exists()
    assert (
        forget(birds, tmp_path / "keys.parquet", "--column", "id", "--allow_missing")["removed"]
        == 1
    )
    (tmp_path / "none.txt").write_text("nobody\n")
    ended = recordmill("forget", birds, "--keys", tmp_path / "none.txt", "--allow_missing")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"nothing to remove: {birds}/1.0.1 has no record")


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (b"", (), "has no keys; expected one per line"),
        (b"\xff\xfe", (), "byte 0 is not valid UTF-8"),
        (b"a,b\n1,2\n", ("--column", "c"), "has no column 'c'"),
        (b"photo-00.jpg", ("--version", "1.0.0"), "expected a version after 1.0.0"),
        (b"photo-00.jpg", ("--version", "next"), "expected three numbers, as in 1.0.1"),
    ],
)
def test_a_wrong_key_file_or_version_is_a_usage_error(
    content: bytes, flags: tuple[str, ...], message: str, birds: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_bytes(content)
    ended = recordmill("forget", birds, "--keys", tmp_path / "keys", *flags)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_keys_that_are_no_file_are_a_usage_error(birds: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "none"):
        ended = recordmill("forget", birds, "--keys", path)
        assert (ended.code, ended.out) == (2, "")
        assert f"--keys {path}: " in ended.err
        assert "Pass a text file or a table" in ended.err


def test_a_new_version_is_beside_its_base_version(
    made: Path, birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(birds)
    assert forget(Path("."), made / "keys.txt")["directory"] == "./1.0.1"
    assert sorted(path.name for path in birds.iterdir()) == ["1.0.0", "1.0.1"]
    renamed = birds.rename(tmp_path / "bees")
    ended = recordmill("forget", renamed, "--keys", made / "keys.txt", "--allow_missing")
    assert ended.code == 0, ended.err  # nothing to remove
    (tmp_path / "one").write_text("photo-00.jpg\n")
    ended = recordmill("forget", renamed, "--keys", tmp_path / "one")
    assert ended.code == 2
    assert f"{renamed}: has versions of the dataset 'birds'; expected the folder" in ended.err


def test_records_are_removed_from_the_newest_version_and_never_all(
    made: Path, without: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    birds, _ = without
    left = {f"photo-{i:02d}.jpg" for i in range(40)} - {*GONE}
    (tmp_path / "all").write_text("\n".join(sorted(left)))
    ended = recordmill("forget", birds, "--keys", tmp_path / "all")
    assert ended.code == 2
    assert "--keys names all of its records" in ended.err
    ended = recordmill("forget", birds / "1.0.0", "--keys", made / "keys.txt")
    assert ended.code == 2
    assert f"is not the newest version; expected {birds}/1.0.1" in ended.err
