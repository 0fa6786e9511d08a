"""Publish: the checks, the sidecars and finally the commit marker; idempotent."""

from __future__ import annotations

import hashlib
import html
import json
import os
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsIter
from apache_beam.testing.util import assert_that, equal_to

from recordmill.pipelines.publish import publish
from recordmill.pipelines.run.run_record import RunContext
from recordmill.pipelines.run.target import Target
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, Problem, ShardVerification
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.rejects import Reason, Reject, RejectBudget
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from tests.beam.direct import config, direct_pipeline, plan

ENTRY = ShardEntry(
    file="birds-train.tfrecord-00000-of-00001",
    records=3,
    payload=300,
    bytes=348,
    sha256="aa",
    crc32c=1,
    index_file="records/records-train-00000-of-00001.parquet",
    index_sha256="bb",
    images={"gif to png": 1, "jpeg kept": 2},
)
SPLITS = {"train": SplitCounts(rows=3, records=3, rejected=0, duplicates=0)}
NO_SPLITS = {"train": SplitCounts(rows=0, records=0, rejected=0, duplicates=0)}
INFO = DatasetInfo(
    plan=plan(4, train=1),
    counts=RowCounts.of(4, SPLITS, 1, {"wrong_type": 1}),
    splits=SPLITS,
    shards=(ShardVerification("train", 0, ENTRY, 2),),
    problems=(),
    classes={"train": {"label": {0: 1, 1: 2}}},
)
CONTEXT = RunContext("run", 0.0, "DirectRunner")
INDEXES = {"idx/b": "4" * 64, "idx/a": "5" * 64}
SIDECARS = {
    "features.json",
    "dataset_info.json",
    "schema.pbtxt",
    "label.labels.txt",
    "croissant.json",
    "README.md",
}


def run_publish(
    info: DatasetInfo, settings: ConvertConfig, folder: Path, state: str, repeat: int = 0
) -> None:
    """Publishes in a pipeline and asserts the resulting state."""
    target = Target(str(folder), str(folder), f"{folder}.run")
    target.begin(CONTEXT)
    if state == "published":
        (folder / ENTRY.file).touch()
    with direct_pipeline(repeat) as p:
        rejects = p | "Rejects" >> beam.Create(["rejects-00000-of-00001.jsonl"])
        found = (
            p
            | "Info" >> beam.Create([info])
            | beam.Map(publish, settings, target, CONTEXT, (), AsIter(rejects), INDEXES)
        )
        assert_that(found, equal_to([state]))


@pytest.mark.parametrize("repeat", [0, 2])
def test_a_verified_dataset_gets_sidecars_and_the_commit_marker(
    repeat: int, tmp_path: Path
) -> None:
    settings = config(max_rejects=RejectBudget.parse("1"))
    run_publish(INFO, settings, tmp_path, "published", repeat)
    assert {path.name for path in tmp_path.iterdir()} == {
        *SIDECARS,
        ENTRY.file,
        "manifest.json",
        "run.json",
        "report.html",
        "_SUCCESS",
    }
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    assert (
        manifest["sidecars"]
        == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in SIDECARS}
        | INDEXES
    )
    assert manifest["input"] == {
        "rows": 4,
        "records": 3,
        "rejected": 1,
        "duplicates": 0,
        "unplaced": 1,
        "reasons": {"wrong_type": 1},
        "asides": {},
    }
    assert manifest["images"] == ENTRY.images
    assert manifest["splits"]["train"]["classes"] == {"label": {"0": 1, "1": 2}}
    assert manifest["splits"]["train"]["shards"] == [
        {
            "file": ENTRY.file,
            "records": 3,
            "bytes": 348,
            "payload": 300,
            "sha256": "aa",
            "crc32c": 1,
            "index_file": ENTRY.index_file,
            "index_sha256": "bb",
            "images": {"gif to png": 1, "jpeg kept": 2},
        }
    ]
    checksum = hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    assert (tmp_path / "_SUCCESS").read_text() == f"{checksum}\n"
    info = json.loads((tmp_path / "dataset_info.json").read_bytes())
    (split,) = info["splits"]
    assert (split["name"], split["shardLengths"], split["numBytes"]) == ("train", ["3"], "300")


def test_lost_rows_exceed_every_reject_budget(tmp_path: Path) -> None:
    rejects = [
        Reject("", "", "d/t.csv:2", Reason.WRONG_TYPE, "x"),
        Reject.of_lost_rows("d/t.csv.gz", 7, "the file ends"),
    ]
    (tmp_path / "rejects").mkdir()
    lines = "".join(f"{reject.to_json()}\n" for reject in rejects)
    (tmp_path / "rejects/rejects-00000-of-00001.jsonl").write_text(lines)
    counts = RowCounts.of(5, SPLITS, 2, {"lost_rows": 1, "wrong_type": 1})
    settings = config(max_rejects=RejectBudget.parse("100%"), report=False)
    run_publish(replace(INFO, counts=counts), settings, tmp_path, "failed")
    record = json.loads((tmp_path / "run.json").read_bytes())
    assert record["exit_code"] == 4
    assert record["message"].startswith(
        "not published: rows of the input are lost:\n"
        "  d/t.csv.gz:7: the file ends\nTheir number is unknown"
    )


def test_the_commit_marker_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace_file = os.replace

    def noting(source: str, target: str) -> None:
        order.append(Path(target).name)
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", noting)
    run_publish(INFO, config(max_rejects=RejectBudget.parse("1")), tmp_path, "published")
    assert order[-2:] == ["dataset_info.json", "_SUCCESS"]
    assert set(order) == {*SIDECARS, "manifest.json", "run.json", "report.html", "_SUCCESS"}


UNPUBLISHED = {
    "a problem": (replace(INFO, problems=(Problem("shard", "broken", 7, 99),)), "shard", 3),
    "the budget": (INFO, "--max_rejects", 4),
    "no record left": (
        replace(INFO, counts=RowCounts.of(2, {}, 2, {"wrong_type": 2}), splits=NO_SPLITS),
        "2 of 2 rows were rejected (2 wrong_type), and no record is left",
        4,
    ),
    "no rows": (replace(INFO, counts=RowCounts.of(0, {}), splits=NO_SPLITS), "no rows", 2),
}


@pytest.mark.parametrize("case", UNPUBLISHED)
def test_problems_are_in_run_json_and_the_report(case: str, tmp_path: Path) -> None:
    info, message, code = UNPUBLISHED[case]
    settings = config(max_rejects=RejectBudget.parse("100%" if case == "no record left" else "0"))
    run_publish(info, settings, tmp_path, "failed")
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "report.html"}
    assert message in html.unescape((tmp_path / "report.html").read_text())
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert (run["run_id"], run["state"], run["exit_code"]) == ("run", "failed", code)
    assert message in run["message"]


def test_a_failing_report_is_only_a_warning(tmp_path: Path) -> None:
    run_publish(INFO, config(max_rejects=RejectBudget.parse("1")), tmp_path, "published")
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert run["warnings"]
    assert all(
        "could not be rendered: VerificationFailed" in warning for warning in run["warnings"]
    )
    assert all(ENTRY.file in w or ENTRY.index_file in w for w in run["warnings"])
    assert (tmp_path / "_SUCCESS").exists()


def test_no_report_is_written_if_it_is_switched_off(tmp_path: Path) -> None:
    settings = config(max_rejects=RejectBudget.parse("1"), report=False)
    run_publish(INFO, settings, tmp_path, "published")
    assert not (tmp_path / "report.html").exists()
    assert json.loads((tmp_path / "run.json").read_bytes())["warnings"] == []


def test_problems_state_record_and_byte(tmp_path: Path) -> None:
    run_publish(UNPUBLISHED["a problem"][0], config(), tmp_path, "failed")
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert "shard: record 7 at byte 99: broken" in run["message"]


OTHER = RunContext("other", 0.0, "DirectRunner")


def publish_here(target: Target) -> str:
    settings = config(max_rejects=RejectBudget.parse("1"), report=False)
    return publish(INFO, settings, target, CONTEXT, (), (), INDEXES)


def test_lists_without_a_line_are_empty_files_also_after_an_earlier_run(tmp_path: Path) -> None:
    target = Target(str(tmp_path), str(tmp_path), f"{tmp_path}.run")
    target.begin(CONTEXT)
    paths = {name: tmp_path / layout.lines_name(name) for name in ("rejects", "dropped")}
    for path in paths.values():
        path.parent.mkdir()
        path.write_text("{}\n")
    written = [str(paths["rejects"])]
    assert publish(INFO, config(), target, CONTEXT, tuple(paths), written, {}) == "failed"
    texts = {name: path.read_text() for name, path in paths.items()}
    assert texts == {"rejects": "{}\n", "dropped": ""}


def test_a_run_whose_files_are_gone_or_taken_publishes_nothing(tmp_path: Path) -> None:
    target = Target(str(tmp_path), str(tmp_path), f"{tmp_path}.run")
    with pytest.raises(RecordmillError, match=r"run\.json: has been deleted, so nothing is publi"):
        publish_here(target)
    target.begin(OTHER)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(RecordmillError, match=r"run\.json: is that of another run, so nothing is"):
        publish_here(target)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"run.json": before}


def test_a_late_attempt_to_publish_leaves_the_files_of_the_next_run(tmp_path: Path) -> None:
    final, run = tmp_path / "1.0.0", tmp_path / ".1.0.0.run"
    target = Target(str(final), str(run / "dataset"), str(run))
    target.begin(CONTEXT)
    (run / "dataset" / ENTRY.file).touch()
    assert publish_here(target) == "published"
    assert not run.exists()
    assert publish_here(target) == "published"  # a retry after it was published
    target.begin(OTHER)  # which replaces the dataset
    before = (run / "dataset/run.json").read_bytes()
    assert publish_here(target) == "published"
    assert (run / "dataset/run.json").read_bytes() == before
