"""The same bytes on every engine, in every mode, whatever the input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.beam_yaml import run_yaml
from tests.end_to_end import readers
from tests.end_to_end.command import recordmill_process
from tests.engines.conftest import Case, Line, Note
from tests.engines.conversion import Ended, assert_the_same, convert, row_counts, shard_digest
from tests.engines.engine import (
    Engine,
    counters_on_flink,
    free_ports,
    shuffled_on_flink,
    shuffled_on_spark,
)
from tests.engines.inputs import KINDS, MISSING, REASONS, ROWS, rows
from tests.openlineage_schema import validate

Cases = Callable[[str], Case]

MAX_SHUFFLED = 1_500
"""Bytes for each row; `--deduplicate content` shuffles references three times."""

DIRECT = {
    "two threads": ("--direct_running_mode=multi_threading", "--direct_num_workers=2"),
    "two processes": ("--direct_running_mode=multi_processing", "--direct_num_workers=2"),
}
DIRECT_KINDS = {"two threads": ["files"], "two processes": ["embedded", "tars"]}
PROGRESS = re.compile(
    r"^\d+ s: (reading|analyzing|placing|writing|verifying), [1-9][\d,]*( of [\d,]+)? rows, "
    r"\d+ rejected$",
    re.MULTILINE,
)
"""A progress line, from workers in any process."""

THREADS, PROCESSES = "threads of the command", "processes"
ENGINES = {
    ("prism", THREADS): ["files", "embedded"],
    ("flink-1.20", THREADS): ["files", "similar"],
    ("flink-1.20", PROCESSES): ["embedded"],
    ("spark", THREADS): ["tars", "distinct"],
    ("spark", PROCESSES): ["files"],
}
"""Which kinds of input each engine converts in which mode: a minute each, so not all of all.

Each engine converts files, each kind is converted by some engine, and each mode has two engines.
"""


@dataclass(frozen=True)
class Running:
    """A running engine, and the flags to use it."""

    engine: Engine
    mode: str
    flags: tuple[str, ...]


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Each engine, one after the other."""
    name, mode = request.param
    port = free_ports()
    workers = port + 4 if mode == PROCESSES else None
    engine = Engine(name, tmp_path_factory.mktemp("engine"), port, workers)
    try:
        yield Running(engine, mode, engine.start())
    finally:
        engine.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_the_input_has_three_splits_and_rejects_of_every_reason(
    kind: str, cases: Cases, note: Note
) -> None:
    """The default tests check that the DirectRunner is deterministic."""
    case = cases(kind)
    note(line(case.ended, case, "DirectRunner", "one, in the command", None))
    check(case.ended, case)
    manifest = json.loads((case.expected / "manifest.json").read_bytes())
    assert set(manifest["splits"]) == {"train", "validation", "test"}
    assert manifest["input"]["rows"] == ROWS
    found = {reason for _, _, reason in readers.reject_reasons(case.expected)}
    assert found == REASONS | {MISSING[kind]}
    assert manifest["input"]["records"] > 1_700


@pytest.mark.parametrize(
    ("kind", "mode"), [(kind, mode) for mode, kinds in DIRECT_KINDS.items() for kind in kinds]
)
def test_the_direct_runner(kind: str, mode: str, cases: Cases, note: Note, tmp_path: Path) -> None:
    case = cases(kind)
    ended = convert(tmp_path / "out", *case.flags, *DIRECT[mode])
    note(line(ended, case, "DirectRunner", mode, None))
    check(ended, case)


@pytest.mark.parametrize(
    ("running", "kind"),
    [(engine, kind) for engine, kinds in ENGINES.items() for kind in kinds],
    indirect=["running"],
    ids=str,
)
def test_an_engine(running: Running, kind: str, cases: Cases, note: Note, tmp_path: Path) -> None:
    case = cases(kind)
    events = tmp_path / "events"
    events.mkdir()
    ended = convert(tmp_path / "out", *case.flags, *running.flags, *_logging(running, events))
    shuffled: Callable[[], int | None] = {
        "prism": lambda: None,
        "flink-1.20": lambda: shuffled_on_flink(running.engine.port),
        "spark": lambda: shuffled_on_spark(events),
    }[running.engine.name]
    each = None if (total := shuffled()) is None else total / ROWS
    note(line(ended, case, running.engine.name, running.mode, each))
    check(ended, case)
    assert each is None or 0 < each <= MAX_SHUFFLED
    assert running.mode == THREADS or PROGRESS.search(ended.output), ended.output
    run = json.loads((ended.dataset / "run.json").read_bytes())
    assert f"--runner={run['runner']}" in running.flags
    if running.engine.name == "flink-1.20":
        assert counters_on_flink(running.engine.port) == counters_of(ended.dataset)


@pytest.mark.parametrize("running", [("flink-1.20", THREADS)], indirect=True, ids=str)
def test_an_increment(
    running: Running, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, *rows = table.read_text().splitlines(keepends=True)
    parts = [table.with_name(f"part-{n}.csv") for n in range(2)]
    for part, some in zip(parts, (rows[:200], rows[200:]), strict=True):
        part.write_text(header + "".join(some))
    base = convert(tmp_path / "base", "--input", str(parts[0])).dataset
    appended = ("--input", str(parts[1]), "--base", str(base), "--append")
    runs = {"flink": running.flags, "direct": ()}
    for name, flags in runs.items():
        events = {"type": "file", "log_file_path": str(tmp_path / f"{name}.jsonl"), "append": True}
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(events))
        assert convert(tmp_path / name, *appended, *flags).code == 0
    found, expected = (tmp_path / name / "pics" / "1.0.0" for name in runs)
    assert_the_same(found, expected)
    flink, direct = (events_in(tmp_path / f"{name}.jsonl", tmp_path / name) for name in runs)
    assert [event["eventType"] for event in flink] == ["START", "COMPLETE"]
    assert flink == json.loads(json.dumps(direct).replace("DirectRunner", "FlinkRunner"))


def events_in(file: Path, output: Path) -> list[dict[str, Any]]:
    """Returns the OpenLineage events of a run, without its id and its times and paths."""
    text = file.read_text().replace(str(output), "OUTPUT")
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    validate(events)
    assert len({event["run"].pop("runId") for event in events}) == 1
    for event in events:
        del event["eventTime"]
    return events


@pytest.mark.parametrize("running", [("flink-1.20", THREADS)], indirect=True, ids=str)
def test_a_removal(running: Running, expected: Path, tmp_path: Path) -> None:
    versions = shutil.copytree(expected.parent, tmp_path / "pics")
    (tmp_path / "keys.txt").write_text("\n".join(readers.keys(expected, "train")[::20]))
    forget = ("forget", versions, "--keys", tmp_path / "keys.txt")
    removed = recordmill_process(*forget, *running.flags)
    assert removed.code == 0, removed.err
    found = content_of_removal(versions / "1.0.1")
    shutil.move(versions / "1.0.1", tmp_path / "removed")
    assert recordmill_process(*forget).code == 0
    assert found == content_of_removal(versions / "1.0.1")


def content_of_removal(dataset: Path) -> dict[str, Any]:
    """Returns the files of a version without some records, except for the time of removal."""
    files = readers.content(dataset)
    removal = json.loads(files["removal.json"])
    manifest = json.loads(files["manifest.json"])
    del removal["removed_at"], manifest["sidecars"]["removal.json"], files["_SUCCESS"]
    return {**files, "removal.json": removal, "manifest.json": manifest}


@pytest.mark.parametrize(
    "running", [("prism", THREADS), ("flink-1.20", THREADS)], indirect=True, ids=str
)
def test_a_pipeline_in_yaml(
    running: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "labels.csv").write_text(
        "image,label\n"
        + "".join(
            f"{row['image']},{row['label'].removeprefix('class ')}\n" for row in rows(tmp_path, 120)
        )
    )
    monkeypatch.chdir(tmp_path)
    direct, found = (
        run_yaml(caplog, *flags) for flags in (("--runner=FnApiRunner",), running.flags)
    )
    assert found == direct
    assert len(found.records) == found.verified == 115
    assert {line.split(": ")[1] for line in found.rejects} == REASONS | {MISSING["files"]}


def line(ended: Ended, case: Case, engine: str, mode: str, shuffled: float | None) -> Line:
    """Returns the result of a conversion."""
    digest, counts = shard_digest(ended.dataset), row_counts(ended.dataset)
    return Line(engine, mode, case.kind, ended.seconds, shuffled, digest, counts)


def counters_of(dataset: Path) -> dict[str, int]:
    """Returns the counters that an engine shows for a conversion without retries."""
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    counts = manifest["input"]
    return {
        "rows_read": counts["rows"],
        "rows_assigned": sum(split["rows"] for split in manifest["splits"].values()),
        "rows_written": counts["records"],
        "rows_verified": counts["records"],
        **{f"rejected_{reason}": count for reason, count in counts["reasons"].items()},
    }


def check(ended: Ended, case: Case) -> None:
    """Asserts that a dataset is as expected and that no error was printed."""
    assert_the_same(ended.dataset, case.expected)
    assert "Traceback" not in ended.output
    assert "ERROR" not in ended.output


def _logging(running: Running, folder: Path) -> tuple[str, ...]:
    """Returns the flags that make Spark log its metrics."""
    if running.engine.name != "spark":
        return ()
    settings = ("enabled=true", f"dir={folder}")
    return tuple(f"--job_server_jvm_property=-Dspark.eventLog.{one}" for one in settings)
