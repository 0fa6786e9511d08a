"""Progress counters: reports of worker processes, and the stage they show."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.options import beam_options
from recordmill.pipelines.run.progress import Stage, _stage_of, poll_workers
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.workers import progress
from recordmill.transforms.workers.progress import (
    ProgressCounters,
    ProgressOptions,
    read_counters,
    sum_of,
)
from tests.forks import forks

STAGES = {
    "starting": (ProgressCounters(), Stage("starting", 0, None)),
    "reading": (ProgressCounters(read=5), Stage("reading", 5, None)),
    "analyzing": (ProgressCounters(read=5, analyzed=4), Stage("analyzing", 4, None)),
    "assigning": (ProgressCounters(analyzed=9, total=9, assigned=3), Stage("assigning", 3, 9)),
    "writing": (
        ProgressCounters(total=9, assigned=9, written=3, rejected=1),
        Stage("writing", 4, 9),
    ),
    "writing and verifying": (
        ProgressCounters(total=9, assigned=9, written=7, rejected=1, verified=5),
        Stage("writing", 8, 9),
    ),
    "verifying": (
        ProgressCounters(total=9, assigned=9, written=8, rejected=1, verified=5),
        Stage("verifying", 5, 8),
    ),
    "verifying once more": (
        ProgressCounters(total=9, assigned=9, written=17, verified=18),
        Stage("verifying", 17, 17),
    ),
}


def work(folder: str) -> None:
    """Counts rows, as a process that an engine has started for a step."""
    progress._SECONDS = 0.2  # instead of 2: the test takes 1 s
    use_pipeline_options(PipelineOptions([f"--progress_folder={folder}"]))
    progress.advance("read", 3)
    progress.set_total(7)
    progress.advance("written", 2)  # reported by the timer
    time.sleep(1)


def exit_codes(folder: str, processes: int) -> list[int | None]:
    """Returns the exit codes of worker processes."""
    workers = [forks.Process(target=work, args=(folder,)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return [worker.exitcode for worker in workers]


@pytest.mark.parametrize("name", STAGES)
def test_the_counters_determine_the_stage(name: str) -> None:
    counters, stage = STAGES[name]
    assert _stage_of(counters) == stage


def test_the_counters_of_worker_processes_are_read(tmp_path: Path) -> None:
    options = beam_options(["--direct_running_mode=multi_processing", "--direct_num_workers=2"])
    folder = tmp_path / "progress"
    with poll_workers(str(folder), options) as look:
        assert look() == ProgressCounters()
        reported = options.view_as(ProgressOptions).progress_folder
        assert reported == str(folder)
        assert exit_codes(reported, 2) == [0, 0]
        assert look() == ProgressCounters(read=6, total=7, written=4)
    assert not folder.exists()


def test_nothing_is_written_without_the_folder(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert exit_codes(str(gone), 1) == [0]
    assert not gone.exists()


def test_an_incomplete_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"read": 1')
    (tmp_path / "b.json").write_text(json.dumps({"read": 2, "total": 4}))
    assert read_counters(str(tmp_path)) == {"b.json": ProgressCounters(read=2, total=4)}
    assert sum_of([]) == ProgressCounters()


def test_workers_in_this_process_write_no_file(tmp_path: Path) -> None:
    options = PipelineOptions([])
    with poll_workers(str(tmp_path / "progress"), options):
        assert not (tmp_path / "progress").exists()
    assert options.view_as(ProgressOptions).progress_folder == ""
