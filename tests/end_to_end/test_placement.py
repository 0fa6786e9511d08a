"""The location of records: splits by weight, column and group; numbers of shards; seeds."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.end_to_end.tables import write_table

NUMBER = 600
TABULAR = ("--schema", "tabular", "--key_column", "id")
WEIGHTS = ("--splits", "train=0.7,validation=0.2,test=0.1")


def row(i: int) -> dict[str, Any]:
    """Returns a row; every third has no split, every seventh shares its patient."""
    return {
        "id": f"row {i}",
        "own": ("train", "test", "")[i % 3],
        "patient": f"patient {i % 97}",
        "text": "x" * 100,
    }


ROWS = [row(i) for i in range(NUMBER)]
IDS = {r["id"] for r in ROWS}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("tables") / "rows.csv", ROWS)


@pytest.fixture(scope="module")
def weighted(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three splits by weight, in one shard each."""
    flags = (*TABULAR, *WEIGHTS, "--num_shards", "1")
    return published(table, tmp_path_factory.mktemp("out"), *flags)


def test_weights_split_the_rows_in_proportion(weighted: Path) -> None:
    splits = readers.splits(weighted)
    assert set.union(*splits.values()) == IDS
    assert sum(map(len, splits.values())) == NUMBER
    for name, weight in {"train": 0.7, "validation": 0.2, "test": 0.1}.items():
        deviation = math.sqrt(NUMBER * weight * (1 - weight))
        assert abs(len(splits[name]) - NUMBER * weight) < 5 * deviation


def test_exact_splits_keep_those_of_a_base_version_and_fill_up(table: Path, tmp_path: Path) -> None:
    """A base version with other shares, so that the new rows cannot be split by its weights."""
    own = ("--splits", "train=0.9,test=0.1", "--split_method", "exact")
    base = published(table, tmp_path / "base", *TABULAR, *own)
    assert {name: len(ids) for name, ids in readers.splits(base).items()} == {
        "train": 540,
        "test": 60,
    }
    grown = write_table(tmp_path / "grown.csv", [row(i) for i in range(NUMBER + 100)])
    flags = ("--splits", "train=0.8,test=0.2", "--split_method", "exact", "--base", str(base))
    splits = readers.splits(published(grown, tmp_path / "new", *TABULAR, *flags))
    assert {name: len(ids) for name, ids in splits.items()} == {"train": 560, "test": 140}
    assert {name: ids & IDS for name, ids in splits.items()} == readers.splits(base)


@pytest.mark.parametrize("method", ["exact", "stratified"])
def test_groups_stay_whole_when_splits_follow_the_number_of_rows(
    method: str, table: Path, tmp_path: Path
) -> None:
    columns = tmp_path / "class.yaml"
    columns.write_text(
        "name: texts\nfeatures:\n"
        "  id: {kind: bytes, from: column:id}\n"
        "  label: {kind: int64, from: column:own, classes: true, missing: empty, shape: []}\n",
        encoding="utf-8",
    )
    flags = ("--schema", str(columns), "--key_column", "id", "--group_column", "patient")
    dataset = published(table, tmp_path, *flags, *WEIGHTS, "--split_method", method)
    splits = readers.splits(dataset)
    patients = {r["id"]: r["patient"] for r in ROWS}
    of_split = {name: {patients[key] for key in keys} for name, keys in splits.items()}
    assert sum(map(len, of_split.values())) == len(set(patients.values()))
    for name, weight in {"train": 0.7, "validation": 0.2, "test": 0.1}.items():
        assert abs(len(splits[name]) - NUMBER * weight) <= 3


def test_a_grown_table_leaves_old_rows_in_their_split(weighted: Path, tmp_path: Path) -> None:
    grown = write_table(tmp_path / "grown.csv", [row(i) for i in range(NUMBER, -200, -1)])
    splits = readers.splits(published(grown, tmp_path, *TABULAR, *WEIGHTS))
    assert {name: ids & IDS for name, ids in splits.items()} == readers.splits(weighted)


def test_more_shards_do_not_change_splits_and_order(
    table: Path, weighted: Path, tmp_path: Path
) -> None:
    flags = ("--num_shards", "train=7,validation=2,test=1")
    dataset = published(table, tmp_path, *TABULAR, *WEIGHTS, *flags)
    for split, count in {"train": 7, "validation": 2, "test": 1}.items():
        names = [path.name for path in readers.shards(dataset, split)]
        template = f"birds-{split}.tfrecord-{{:05d}}-of-{count:05d}"
        assert names == [template.format(i) for i in range(count)]
        assert readers.records(dataset, split) == readers.records(weighted, split)


def test_auto_gives_shards_of_about_the_requested_size(
    table: Path, weighted: Path, tmp_path: Path
) -> None:
    dataset = published(table, tmp_path, *TABULAR, *WEIGHTS, "--shard_size", "10kB")
    for split in ("train", "validation", "test"):
        whole = readers.shards(weighted, split)[0].stat().st_size
        shards = readers.shards(dataset, split)
        assert len(shards) in {math.ceil(whole * error / 10_000) for error in (0.8, 0.9, 1, 1.1)}
        assert sum(path.stat().st_size for path in shards) == whole


def test_another_seed_gives_other_splits_and_another_order_of_the_same_records(
    table: Path, weighted: Path, tmp_path: Path
) -> None:
    dataset = published(table, tmp_path, *TABULAR, *WEIGHTS, "--seed", "1", "--num_shards", "1")
    splits, before = readers.splits(dataset), readers.splits(weighted)
    assert set.union(*splits.values()) == IDS
    assert all(splits[name] != before[name] for name in before)
    every = [[r for s in before for r in readers.records(d, s)] for d in (dataset, weighted)]
    assert sorted(every[0]) == sorted(every[1])
    stayed = splits["train"] & before["train"]
    order = [[k for k in readers.keys(d, "train") if k in stayed] for d in (dataset, weighted)]
    assert sorted(order[0]) == sorted(order[1])
    assert order[0] != order[1]


@pytest.mark.parametrize("method", ["hash", "exact"])
def test_a_sample_is_a_part_of_the_whole_dataset_and_of_larger_samples(
    method: str, table: Path, tmp_path: Path
) -> None:
    flags = (*TABULAR, *WEIGHTS, "--num_shards", "1", "--split_method", method)
    whole = published(table, tmp_path / "whole", *flags)
    ended = convert(table, tmp_path / "40%", *flags, "--sample", "40%", "--base", whole)
    assert ended.code == 0, ended.err
    large = tmp_path / "40%" / "birds" / "1.0.0"
    small = published(table, tmp_path / "100", *flags, "--sample", "100")
    counts = json.loads((large / "manifest.json").read_bytes())["input"]
    assert f"sample 40%: {counts['rows']} of 600 rows" in ended.out
    assert counts["asides"] == {"rows outside of --sample": 600 - counts["rows"]}
    assert sum(map(len, readers.splits(small).values())) == 100
    for sample, larger in ((small, large), (large, whole)):
        for split, ids in readers.splits(sample).items():
            assert ids < readers.splits(larger)[split]
            order = [key for key in readers.keys(larger, split) if key in ids]
            assert readers.keys(sample, split) == order
    assert recordmill("verify", small).code == 0


def test_the_split_column_takes_precedence_over_weights(
    table: Path, weighted: Path, tmp_path: Path
) -> None:
    dataset = published(table, tmp_path, *TABULAR, *WEIGHTS, "--split_column", "own")
    before = readers.splits(weighted)
    expected: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for r in ROWS:
        split = r["own"] or next(name for name, ids in before.items() if r["id"] in ids)
        expected[split].add(r["id"])
    assert readers.splits(dataset) == expected


def test_a_split_column_alone_makes_the_splits_that_it_names_and_groups_that_leak_are_reported(
    table: Path, tmp_path: Path
) -> None:
    ended = convert(
        table, tmp_path, *TABULAR, "--report", "--split_column", "own", "--group_column", "patient"
    )
    assert ended.code == 0, ended.err
    dataset = tmp_path / "birds" / "1.0.0"
    assert readers.splits(dataset) == {
        "train": {r["id"] for r in ROWS if r["own"] in ("train", "")},
        "test": {r["id"] for r in ROWS if r["own"] == "test"},
    }
    patients = [
        {r["patient"] for r in ROWS if (r["own"] == "test") is is_test} for is_test in (True, False)
    ]
    both = sorted(set.intersection(*patients))
    leaks = {
        "groups": len(both),
        "examples": [[patient, ["test", "train"]] for patient in both[:5]],
    }
    assert json.loads((dataset / "manifest.json").read_bytes())["group_leaks"] == leaks
    warning = f"{len(both)} groups of 'patient' are in more than one split (patient 0 in test and"
    assert f"warning: {warning}" in ended.out
    assert warning in html.unescape((dataset / "report.html").read_text())
    assert recordmill("verify", dataset).code == 0


def test_a_group_is_never_divided_and_one_number_of_shards_is_for_each_split(
    table: Path, tmp_path: Path
) -> None:
    flags = ("--group_column", "patient", "--num_shards", "3")
    dataset = published(table, tmp_path, *TABULAR, *WEIGHTS, *flags)
    splits = readers.splits(dataset)
    assert set(splits) == {"train", "validation", "test"}
    for split in splits:
        sizes = [path.stat().st_size for path in readers.shards(dataset, split)]
        assert (len(sizes), all(sizes)) == (3, True)
    assert set.union(*splits.values()) == IDS
    patients = {
        name: {r["patient"] for r in ROWS if r["id"] in ids} for name, ids in splits.items()
    }
    assert sum(map(len, patients.values())) == 97
    assert all(patients.values())
