"""A new version from a base version: rows keep their splits, unchanged shards are reused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.images import jpeg

OLD = ("--splits", "train=0.6,test=0.4", "--num_shards", "2", "--no_report")
NEW = ("--splits", "train=0.2,validation=0.8", "--seed", "7", "--num_shards", "1", "--no_report")


def table(folder: Path, name: str, numbers: range, classes: str = "cd") -> Path:
    """Writes a table of images, and draws missing images."""
    lines = ["image,label"]
    for i in numbers:
        if not (folder / f"{i}.jpg").exists():
            (folder / f"{i}.jpg").write_bytes(jpeg(16, 12, seed=i))
        lines.append(f"{i}.jpg,{classes[i % len(classes)]}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def manifest(dataset: Path) -> dict[str, Any]:
    return json.loads((dataset / "manifest.json").read_bytes())


def run_record(dataset: Path) -> dict[str, Any]:
    return json.loads((dataset / "run.json").read_bytes())


def grown(tables: Path, output: Path, *flags: object) -> Path:
    """Makes version 1.1.0 from 1.0.0."""
    base = output / "birds" / "1.0.0"
    ended = convert(tables, output, "--version", "1.1.0", "--base", base, *flags)
    assert ended.code == 0, ended.err
    dataset = output / "birds" / "1.1.0"
    assert recordmill("verify", dataset, "--decode").code == 0
    return dataset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, with their dataset in out/."""
    folder = tmp_path_factory.mktemp("growing")
    published(table(folder, "old.csv", range(20)), folder / "out", *OLD)
    return folder


@pytest.fixture
def base(made: Path, tmp_path: Path) -> Path:
    """A copy of the dataset for one test; its images keep their paths and times."""
    shutil.copytree(made / "out", tmp_path / "out")
    return tmp_path / "out" / "birds" / "1.0.0"


def test_rows_keep_their_split_shards_are_reused_and_class_ids_are_appended(
    made: Path, base: Path, tmp_path: Path
) -> None:
    wider = table(made, "new.csv", range(30), "cda")
    lines = wider.read_text().splitlines()
    old = (made / "old.csv").read_text().splitlines()
    wider.write_text("\n".join([lines[0], *reversed(lines[21:]), *old[1:]]) + "\n")
    dataset = grown(wider, tmp_path / "out", *NEW)
    before, after = readers.splits(base), readers.splits(dataset)
    assert set.union(*after.values()) == {f"{i}.jpg" for i in range(30)}
    assert {split: keys & after[split] for split, keys in before.items()} == before
    assert after["test"] == before["test"]
    assert (dataset / "label.labels.txt").read_text().split() == ["c", "d", "a"]
    for split in ("train", "test"):
        old_shards, new_shards = readers.shards(base, split), readers.shards(dataset, split)
        assert [p.read_bytes() for p in new_shards[:2]] == [p.read_bytes() for p in old_shards]
        assert [p.stat().st_ino for p in new_shards[:2]] == [p.stat().st_ino for p in old_shards]
    document = manifest(dataset)
    new = {split: len(keys - before.get(split, set())) for split, keys in after.items()}
    assert document["base"] == {
        "version": "1.0.0",
        "manifest_sha256": hashlib.sha256((base / "manifest.json").read_bytes()).hexdigest(),
        "kept": {split: len(keys) for split, keys in sorted(before.items())},
        "new": {split: count for split, count in new.items() if count},
        "gone": {"test": 0, "train": 0},
        "shards_unchanged": 4,
        "classes": {
            "label": {
                **{"added": 1, "gone": 0, "changed": 0},
                **{"added_examples": ["a"], "gone_examples": [], "changed_examples": []},
            }
        },
    }
    assert document["images"] == {"jpeg kept": 30}
    assert run_record(dataset)["shards_linked"] == 4


def test_a_dry_run_shows_the_shards_of_the_new_version(
    made: Path, base: Path, tmp_path: Path
) -> None:
    wider = table(made, "new.csv", range(30))
    asked = ("--version", "1.1.0", "--base", base, "--dry_run", "--json", *NEW)
    ended = convert(wider, tmp_path / "out", *asked)
    assert (ended.code, ended.err) == (0, "")
    splits = manifest(grown(wider, tmp_path / "out", *NEW))["splits"]
    forecast = json.loads(ended.out)["splits"]
    assert {name: split["shard_records"] for name, split in forecast.items()} == {
        name: [shard["records"] for shard in split["shards"]] for name, split in splits.items()
    }


def test_linked_shards_equal_rewritten_ones(made: Path, base: Path, tmp_path: Path) -> None:
    wider = table(made, "new.csv", range(30))
    one = grown(wider, tmp_path / "out", *NEW)
    linked = readers.content(one)
    (base / "run.json").unlink()  # so that nothing is known of how its shards were made
    ended = convert(
        wider,
        *(tmp_path / "out", "--version", "1.1.0", "--base", base, *NEW),
        *("--if_exists", "replace"),
    )
    assert ended.code == 0, ended.err
    assert run_record(one)["shards_linked"] == 0
    assert readers.content(one) == linked


def test_shards_with_removed_rows_or_changed_images_are_rewritten(tmp_path: Path) -> None:
    base = published(table(tmp_path, "old.csv", range(20)), tmp_path / "out", *OLD)
    train = sorted(readers.splits(base)["train"])
    homes = {row["key"]: row["shard"] for row in readers.index_rows(base, "train")}
    changed = train[0]
    gone = next(key for key in train if homes[key] != homes[changed])
    (tmp_path / changed).write_bytes(jpeg(16, 12, seed=99))
    lines = (tmp_path / "old.csv").read_text().splitlines()
    smaller = tmp_path / "smaller.csv"
    smaller.write_text("\n".join(line for line in lines if not line.startswith(f"{gone},")) + "\n")
    dataset = grown(smaller, tmp_path / "out", *OLD)
    assert readers.splits(dataset)["train"] == set(train) - {gone}
    document = manifest(dataset)
    assert document["base"]["gone"] == {"test": 0, "train": 1}
    assert (document["base"]["shards_unchanged"], run_record(dataset)["shards_linked"]) == (2, 2)
    images = {row["key"]: row["sha256"] for row in readers.index_rows(dataset, "train")}
    assert images[changed] == hashlib.sha256((tmp_path / changed).read_bytes()).hexdigest()


def test_a_damaged_shard_of_the_base_is_not_reused(made: Path, base: Path, tmp_path: Path) -> None:
    shard = readers.shards(base, "train")[0]
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    dataset = grown(made / "old.csv", tmp_path / "out", *OLD)
    assert run_record(dataset)["shards_linked"] == 3
    assert readers.shards(dataset, "train")[0].read_bytes() == data


def test_other_image_settings_reuse_no_shard_but_keep_every_location(
    made: Path, base: Path, tmp_path: Path
) -> None:
    flags = (*OLD, "--image", "max_side=8")
    dataset = grown(made / "old.csv", tmp_path / "out", *flags)
    assert run_record(dataset)["shards_linked"] == 0
    assert manifest(dataset)["base"]["shards_unchanged"] == 0
    for split in ("train", "test"):
        assert readers.keys(dataset, split) == readers.keys(base, split)


def test_a_row_of_the_base_takes_precedence_over_a_new_row_with_its_image(
    made: Path, base: Path, tmp_path: Path
) -> None:
    (made / "!.jpg").write_bytes((made / "0.jpg").read_bytes())
    wider = made / "wider.csv"
    wider.write_text((made / "old.csv").read_text() + "!.jpg,c\n")
    dataset = grown(wider, tmp_path / "out", *OLD, "--deduplicate", "content")
    assert readers.splits(dataset) == readers.splits(base)
    assert manifest(dataset)["input"]["duplicates"] == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--base", "nowhere/birds/1.0.0"), "not a published dataset"),
        (("--classes", "classes.txt"), "--classes: expected the 2 classes of"),
        (("--group_column", "label"), "group_column"),
        (("--version", "1.0.0", "--if_exists", "replace"), "Raise --version"),
    ],
)
def test_options_that_contradict_the_base_are_rejected(
    flags: tuple[str, ...],
    message: str,
    made: Path,
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("d\nc\n")
    asked = ("--version", "1.1.0", "--base", base, *flags)
    ended = convert(made / "old.csv", tmp_path / "out", *asked)
    assert ended.code == 2
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out" / "birds" / "1.1.0").exists()
