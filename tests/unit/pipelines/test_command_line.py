"""recordmill/pipelines/command_line.py: when a separate process is started to verify."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from recordmill.pipelines import command_line

CONVERT = ["convert", "--input", "a.csv", "--name", "birds", "--output"]


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        ([*CONVERT, "out"], True),
        ([*CONVERT, "out", "--runner=DirectRunner"], True),
        ([*CONVERT, "out", "--runner", "FnApiRunner"], True),
        ([*CONVERT, "out", "--direct_running_mode=multi_threading"], True),
        ([*CONVERT, "out", "--direct_running_mode", "multi_processing"], False),
        ([*CONVERT, "out", "--runner=DataflowRunner"], False),
        ([*CONVERT, "out", "--runner=FlinkRunner", "--environment_type=LOOPBACK"], True),
        ([*CONVERT, "out", "--runner=FlinkRunner", "--environment_type=DOCKER"], False),
        ([*CONVERT, "s3://bucket/out"], False),
        ([*CONVERT, "out", "--dry_run"], False),
        (["verify", "out/birds/1.0.0"], True),
        (["verify", "s3://bucket/out/birds/1.0.0"], False),
        (["inspect", "out/birds/1.0.0"], False),
    ],
)
def test_the_verifier_starts_where_workers_are_threads_and_files_are_local(
    arguments: list[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(
        command_line, "verifier_process_started", lambda: nullcontext(started.append(True))
    )
    monkeypatch.setattr(command_line, "_run", lambda command, flags, rest: 0)
    assert command_line.main(arguments) == 0
    assert started == [True] * starts
