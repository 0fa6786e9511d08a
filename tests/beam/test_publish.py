"""Publish: the gate, the sidecars, and the commit mark, last; the same when it is run twice."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsIter
from apache_beam.testing.util import assert_that, equal_to

from pipelines.publish import publish
from pipelines.run_record import RunContext
from pipelines.target import Target
from schemas.config import ConvertConfig, RejectBudget
from schemas.dataset_info import Books, DatasetInfo, Problem, ShardAudit, SplitBooks
from tests.beam.direct import config, direct_pipeline, plan

AUDIT = ShardAudit(
    split="train",
    index=0,
    file="birds-train.tfrecord-00000-of-00001",
    records=3,
    payload=300,
    size=348,
    sha256="aa",
    crc32c=1,
    index_file="records/records-train-00000-of-00001.parquet",
    index_sha256="bb",
    index_crc32c=2,
    classes={"label": {0: 1, 1: 2}},
)
BOOKS = Books(4, 1, {"train": SplitBooks(rows=3, written=3)}, {"wrong_type": 1})
INFO = DatasetInfo(
    plan=plan(4, train=1),
    books=BOOKS,
    shards=(AUDIT,),
    images={"jpeg kept": 2, "gif to png": 1},
    problems=(),
)
CONTEXT = RunContext("run", 0.0, "DirectRunner")
SIDECARS = {"features.json", "dataset_info.json", "schema.pbtxt", "label.labels.txt"}


def run_publish(
    info: DatasetInfo, settings: ConvertConfig, folder: Path, state: str, repeat: int = 0
) -> None:
    """Publishes within a pipeline, and asserts the state that comes out."""
    target = Target(str(folder), str(folder))
    with direct_pipeline(repeat) as p:
        rejects = p | "Rejects" >> beam.Create(["rejects-00000-of-00001.jsonl"])
        found = (
            p
            | "Info" >> beam.Create([info])
            | beam.Map(publish, settings, target, CONTEXT, AsIter(rejects))
        )
        assert_that(found, equal_to([state]))


@pytest.mark.parametrize("repeat", [0, 2])
def test_a_proven_dataset_gets_its_sidecars_and_its_mark(repeat: int, tmp_path: Path) -> None:
    settings = config(max_rejects=RejectBudget(amount=1))
    run_publish(INFO, settings, tmp_path, "published", repeat)
    assert {path.name for path in tmp_path.iterdir()} == {
        *SIDECARS,
        "manifest.json",
        "run.json",
        "_SUCCESS",
    }
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    assert manifest["sidecars"] == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in SIDECARS
    }
    assert manifest["input"] == {
        "rows": 4,
        "records": 3,
        "rejected": 1,
        "duplicates": 0,
        "unplaced": 1,
        "reasons": {"wrong_type": 1},
    }
    assert manifest["images"] == INFO.images
    assert manifest["splits"]["train"]["shards"] == [
        {
            "file": AUDIT.file,
            "records": 3,
            "bytes": 348,
            "payload": 300,
            "sha256": "aa",
            "crc32c": 1,
            "index_file": AUDIT.index_file,
            "index_sha256": "bb",
            "classes": {"label": {"0": 1, "1": 2}},
        }
    ]
    seal = hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    assert (tmp_path / "_SUCCESS").read_text() == f"{seal}\n"
    info = json.loads((tmp_path / "dataset_info.json").read_bytes())
    (split,) = info["splits"]
    assert (split["name"], split["shardLengths"], split["numBytes"]) == ("train", ["3"], "300")


def test_the_mark_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace_file = os.replace

    def noting(source: str, target: str) -> None:
        order.append(Path(target).name)
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", noting)
    run_publish(INFO, config(max_rejects=RejectBudget(amount=1)), tmp_path, "published")
    assert order[-2:] == ["dataset_info.json", "_SUCCESS"]
    assert set(order) == {*SIDECARS, "manifest.json", "run.json", "_SUCCESS"}


REFUSED = {
    "a problem": (replace(INFO, problems=(Problem("shard", "broken", 7, 99),)), "shard", 3),
    "the budget": (INFO, "--max_rejects", 4),
    "no rows": (replace(INFO, books=Books(0, 0, {}, {})), "no rows", 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_speaks_against_it_is_told_in_run_json_alone(case: str, tmp_path: Path) -> None:
    info, told, code = REFUSED[case]
    run_publish(info, config(), tmp_path, "failed")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert (run["run_id"], run["state"], run["exit_code"]) == ("run", "failed", code)
    assert told in run["message"]


def test_a_problem_is_told_with_record_and_byte(tmp_path: Path) -> None:
    run_publish(REFUSED["a problem"][0], config(), tmp_path, "failed")
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert "shard: record 7 at byte 99: broken" in run["message"]
