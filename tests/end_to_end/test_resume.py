"""A run that did not publish is gone on with: what is the same is taken, all else is made anew."""

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


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Sixteen pictures, one of them cut short, and a first run that failed for that."""
    lines = ["image,label"]
    for i in range(16):
        data = jpeg(16, 12, seed=i)
        (tmp_path / f"{i}.jpg").write_bytes(data[:-100] if i == 5 else data)
        lines.append(f"{i}.jpg,{'ab'[i % 2]}")
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(lines) + "\n")
    assert convert(table, tmp_path / "out", *SHARDS).code == 4
    assert [path.name for path in sorted((tmp_path / "out" / "birds").iterdir())] == [
        ".1.0.0.run",
        "1.0.0",
    ]
    return table


def shard_of(dataset: Path, key: str) -> int:
    return next(row["shard"] for row in readers.index_rows(dataset, "train") if row["key"] == key)


def gone_on(table: Path, *flags: str) -> tuple[Path, dict[str, Any]]:
    """Runs once more, with one reject allowed; returns the dataset and its run.json.

    It has to be what a run without any past makes, and nothing may be left beside it.
    """
    output = table.parent / "out"
    ended = convert(table, output, *SHARDS, "--max_rejects", "1", *flags)
    assert ended.code == 0, ended.err
    fresh = table.parent / "fresh"
    assert convert(table, fresh, *SHARDS, "--max_rejects", "1", *flags).code == 0
    dataset = output / "birds" / "1.0.0"
    assert readers.content(dataset) == readers.content(fresh / "birds" / "1.0.0")
    assert os.listdir(output / "birds") == ["1.0.0"]
    assert recordmill("verify", dataset).code == 0
    return dataset, json.loads((dataset / "run.json").read_bytes())


def test_every_finished_shard_is_taken_its_rejects_too(table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0], "", *reversed(lines[1:])]) + "\n")  # other lines
    dataset, run = gone_on(table)
    assert (run["shards"], run["shards_reused"], run["rejected"]) == (4, 4, 1)
    assert readers.reject_reasons(dataset) == [("5.jpg", "labels.csv:13", "truncated")]


def test_a_picture_or_a_row_that_changed_costs_its_shard_alone(table: Path) -> None:
    twin = table.parent / "0.jpg"
    when = twin.stat()
    twin.write_bytes(jpeg(16, 12, seed=77))
    os.utime(twin, ns=(when.st_atime_ns, when.st_mtime_ns))  # made to look as it was
    table.write_text(table.read_text().replace("1.jpg,b", "1.jpg,a", 1))
    dataset, run = gone_on(table)
    changed = {shard_of(dataset, "0.jpg"), shard_of(dataset, "1.jpg")}
    assert run["shards_reused"] == 4 - len(changed)


@pytest.mark.parametrize(
    "flags",
    [("--image", "max_side=8"), ("--compression", "gzip")],
    ids=["image", "compression"],
)
def test_another_option_takes_nothing_of_it(flags: tuple[str, ...], table: Path) -> None:
    _, run = gone_on(table, *flags)
    assert run["shards_reused"] == 0


def test_a_damaged_file_of_the_staging_area_is_not_taken(table: Path) -> None:
    failed = table.parent / "out" / "birds" / "1.0.0"
    shards = readers.shards(failed, "train")
    data = shards[0].read_bytes()
    shards[0].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    shutil.copy(shards[3], shards[2])
    _, run = gone_on(table)
    assert run["shards_reused"] == 1
