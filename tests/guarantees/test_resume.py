"""An unpublished run is resumed: unchanged shards are reused, all others are rewritten."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import convert, recordmill
from tests.images import jpeg

SHARDS = ("--num_shards", "4", "--no_report")


def fail(folder: Path, *flags: str) -> Path:
    """Draws sixteen images, one of them truncated; returns their table, after a failed run."""
    lines = ["image,label"]
    for i in range(16):
        data = jpeg(16, 12, seed=i)
        (folder / f"{i}.jpg").write_bytes(data[:-100] if i == 5 else data)
        lines.append(f"{i}.jpg,{'ab'[i % 2]}")
    table = folder / "labels.csv"
    table.write_text("\n".join(lines) + "\n")
    assert convert(table, folder / "out", *SHARDS, *flags).code == 4
    assert [path.name for path in sorted((folder / "out" / "birds").iterdir())] == [
        ".1.0.0.run",
        "1.0.0",
    ]
    assert sorted(os.listdir(folder / "out/birds/1.0.0")) == ["rejects", "run.json"]  # no shard
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and the files of its failed run, for tests that change no image."""
    return fail(tmp_path_factory.mktemp("failed"))


@pytest.fixture
def output(table: Path, tmp_path: Path) -> Path:
    """A copy of the files of the failed run, for one test."""
    return Path(shutil.copytree(table.parent / "out", tmp_path / "out"))


def shard_of(dataset: Path, key: str) -> int:
    return next(row["shard"] for row in readers.index_rows(dataset, "train") if row["key"] == key)


def gone_on(table: Path, output: Path, *flags: str) -> tuple[Path, dict[str, Any]]:
    """Runs again with one reject allowed; returns the dataset and its run.json.

    The dataset must equal that of a first run, without leftovers beside it.
    """
    ended = convert(table, output, *SHARDS, "--max_rejects", "1", *flags)
    assert ended.code == 0, ended.err
    fresh = output.with_name("fresh")
    assert convert(table, fresh, *SHARDS, "--max_rejects", "1", *flags).code == 0
    dataset = output / "birds" / "1.0.0"
    readers.assert_the_same(dataset, fresh / "birds" / "1.0.0")
    assert os.listdir(output / "birds") == ["1.0.0"]
    return dataset, json.loads((dataset / "run.json").read_bytes())


def test_every_finished_shard_is_reused_with_its_rejects(table: Path, output: Path) -> None:
    header, *rows = table.read_text().splitlines()
    other = table.with_name("other lines.csv")
    other.write_text("\n".join([header, "", *reversed(rows)]) + "\n")
    dataset, run = gone_on(other, output)
    assert (run["shards"], run["shards_reused"], run["rejected"]) == (4, 4, 1)
    assert readers.reject_reasons(dataset) == [("5.jpg", "other lines.csv:13", "truncated")]
    assert recordmill("verify", dataset).code == 0


def test_a_sample_is_resumed_and_extended_to_all_rows(tmp_path: Path) -> None:
    sample = ("--sample", "13")
    table = fail(tmp_path, *sample)
    failed = shutil.copytree(tmp_path / "out", tmp_path / "all" / "out")
    _, run = gone_on(table, tmp_path / "out", *sample)
    found = run["shards"], run["shards_reused"], run["records"], run["rejected"]
    assert found == (4, 4, 12, 1)
    _, run = gone_on(table, failed)
    assert (run["records"], run["rejected"]) == (15, 1)


def test_a_changed_image_or_row_rewrites_only_its_shard(tmp_path: Path) -> None:
    table = fail(tmp_path)
    twin = table.parent / "0.jpg"
    when = twin.stat()
    twin.write_bytes(jpeg(16, 12, seed=77))
    os.utime(twin, ns=(when.st_atime_ns, when.st_mtime_ns))  # made to look as it was
    table.write_text(table.read_text().replace("1.jpg,b", "1.jpg,a", 1))
    dataset, run = gone_on(table, tmp_path / "out")
    changed = {shard_of(dataset, "0.jpg"), shard_of(dataset, "1.jpg")}
    assert run["shards_reused"] == 4 - len(changed)


def test_a_changed_option_reuses_no_shard(table: Path, output: Path) -> None:
    """The tests of the fingerprint of the configuration cover which options these are."""
    _, run = gone_on(table, output, "--image", "max_side=8")
    assert run["shards_reused"] == 0


def test_a_damaged_file_of_the_staging_folder_is_not_reused(table: Path, output: Path) -> None:
    failed = output / "birds" / ".1.0.0.run" / "dataset"
    shards = readers.shards(failed, "train")
    data = shards[0].read_bytes()
    shards[0].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    shutil.copy(shards[3], shards[2])
    _, run = gone_on(table, output)
    assert run["shards_reused"] == 1
