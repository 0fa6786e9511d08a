"""The dataset does not depend on how bundles are executed."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.runners.portability.fn_api_runner import execution

from tests.beam.test_write_shards import watch
from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.end_to_end.tables import write_table
from tests.end_to_end.test_exit_codes import assert_a_failed_write_is_reported_once
from tests.end_to_end.test_near_duplicates import table_of_similar_images
from tests.images import jpeg

NUMBER = 60
FLAGS = (
    *("--splits", "train=0.8,test=0.2", "--num_shards", "train=4,test=2", "--max_rejects", "4"),
    *("--split_column", "split"),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty images above 10 kB, a missing one, a text file, and two duplicate keys."""
    folder = tmp_path_factory.mktemp("images")
    for i in range(NUMBER):
        (folder / f"{i}.jpg").write_bytes(jpeg(256, 192, seed=i, quality=95))
    (folder / "text.jpg").write_text("not an image")
    rows = [{"image": f"{i}.jpg", "label": f"class {i % 7}", "split": ""} for i in range(NUMBER)]
    rows += [{**rows[3], "split": "train"}, {**rows[3], "split": "test"}]
    rows += [{**rows[0], "image": name} for name in ("nowhere.jpg", "text.jpg")]
    return write_table(folder / "labels.csv", rows)


@pytest.fixture(scope="module")
def expected(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = published(table, tmp_path_factory.mktemp("out"), *FLAGS)
    assert sum(len(keys) for keys in readers.splits(dataset).values()) == NUMBER
    assert len(readers.rejects(dataset)) == 4
    return dataset


def test_every_bundle_run_twice_gives_the_same_bytes(
    table: Path, expected: Path, tmp_path: Path
) -> None:
    dataset = published(table, tmp_path, *FLAGS, "--direct_runner_bundle_repeat=1")
    readers.assert_the_same(dataset, expected)
    folders = [
        {str(path.relative_to(d)) for path in d.rglob("*") if path.is_dir()}
        for d in (dataset, expected)
    ]
    assert folders == [{"records", "rejects"}] * 2


@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
def test_two_workers_give_the_same_bytes(
    mode: str, table: Path, expected: Path, tmp_path: Path
) -> None:
    workers = (f"--direct_running_mode={mode}", "--direct_num_workers=2")
    dataset = published(table, tmp_path, *FLAGS, *workers)
    readers.assert_the_same(dataset, expected)


def test_two_worker_processes_keep_similar_images_together(tmp_path: Path) -> None:
    flags = ("--split_method", "exact", "--splits", "train=0.75,test=0.25", "--near_duplicates")
    table, mode = table_of_similar_images(tmp_path), "--direct_running_mode=multi_processing"
    one = published(table, tmp_path / "one", *flags, "keep_together")
    workers = (mode, "--direct_num_workers=2")
    two = published(table, tmp_path / "two", *flags, "keep_together", *workers)
    readers.assert_the_same(two, one)


def test_a_failed_write_of_worker_processes_is_reported_once(tmp_path: Path) -> None:
    assert_a_failed_write_is_reported_once("multi_processing", tmp_path)


def test_shuffles_carry_less_than_1_kb_per_row(
    table: Path, expected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [path.read_bytes() for path in table.parent.glob("[0-9]*.jpg")]
    assert min(map(len, images)) > 10_000
    grouped, kept = [], []
    watch(monkeypatch, execution.GroupingBuffer, grouped.append)
    watch(monkeypatch, execution.ListBuffer, kept.append)
    dataset = published(table, tmp_path, *FLAGS)
    readers.assert_the_same(dataset, expected)
    assert 0 < sum(map(len, grouped)) <= 1000 * NUMBER
    for data in (*grouped, *kept):
        assert not any(image[500:532] in data for image in images)
