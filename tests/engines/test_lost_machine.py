"""A machine that loses its connection, and comes back after its work was reassigned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.command import recordmill
from tests.engines.conftest import Begin, Launch
from tests.engines.conversion import assert_stored, assert_the_same
from tests.engines.pause import Pause
from tests.stores.kinds import Store

SECONDS = 120


@pytest.mark.parametrize("in_store", [False, True], ids=["folder", "store"])
def test_a_late_worker_changes_nothing(
    in_store: bool,
    store: Store,
    pause: Pause,
    table: Path,
    expected: Path,
    begin: Begin,
    launch: Launch,
    tmp_path: Path,
) -> None:
    """Its Python worker continues a shard that another worker is rewriting."""
    engine = launch("flink-1.20")
    target = ("--output", f"{store.root}/out", *store.flags) if in_store else ()
    conversion = begin("--input", str(table), *target, *engine.start())
    with pause.until_it_is_read(conversion):
        worker = engine.child("workers", "forkserver")
        lost = engine.lose("taskmanager")
        lost.suspend()
        engine.start()  # ends when Flink knows of no other task manager than the new one
        assert worker.is_running()
        lost.resume()
    ended = conversion.wait()
    lost.kill()
    lost.wait(SECONDS)
    assert ended.code == 0, ended.output
    if in_store:
        assert_stored(store, expected, tmp_path)
        return
    assert_the_same(ended.dataset, expected)
    assert os.listdir(ended.dataset.parent) == [ended.dataset.name]
    assert recordmill("verify", ended.dataset).code == 0
