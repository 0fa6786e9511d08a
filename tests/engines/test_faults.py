"""Faults during writing: with retries, bytes are the same; without, nothing is published."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.command import recordmill
from tests.engines.conftest import Begin, Launch
from tests.engines.conversion import Conversion, Ended, assert_stored, assert_the_same, convert
from tests.engines.engine import Engine, running_on_flink
from tests.engines.pause import Pause
from tests.stores.kinds import Store


def kill_task_manager(engine: Engine) -> None:
    process = psutil.Process(engine.pids()["taskmanager"])
    process.kill()
    process.wait(timeout=30)
    engine.start()


def kill_executor(engine: Engine) -> None:
    engine.child("worker", "CoarseGrainedExecutorBackend").kill()


def kill_worker(engine: Engine) -> None:
    engine.child("workers", "forkserver").kill()


TRACEBACK = re.compile(r'File ".*(pipelines|transforms|apache_beam)/')
"""One of the command's; Python itself prints one for a child that dies while it is started."""

FAULTS: dict[str, tuple[str, Callable[[Engine], None]]] = {
    "a task manager of Flink": ("flink-1.20", kill_task_manager),
    "an executor of Spark": ("spark", kill_executor),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_with_retries_the_dataset_is_the_same(
    fault: str, launch: Launch, pause: Pause, table: Path, expected: Path, begin: Begin
) -> None:
    """Killed worker processes are those of the next test."""
    name, cause = FAULTS[fault]
    engine = launch(name, with_workers=False)
    conversion = begin("--input", str(table), *engine.start())
    with pause.until_it_is_read(conversion):
        assert list(conversion.dataset.parent.rglob("*.partial"))  # a shard without its final name
        cause(engine)
    ended = conversion.wait()
    assert ended.code == 0, ended.output
    assert_the_same(ended.dataset, expected)


SHARD_PUT = r"^PUT .*/pics-train\.tfrecord-\d{5}-of-\d{5}$"
LATE_MS = 10_000


def wait_for_shard_put(store: Store, conversion: Conversion) -> None:
    """Waits until a shard is on its way to the store."""
    while not any(re.search(SHARD_PUT, name) for name in store.proxy.requests()):
        assert conversion.running(), conversion.wait().output
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["flink-1.20", "spark"])
def test_a_store_has_the_same_objects_after_workers_were_killed(
    name: str,
    store: Store,
    pause: Pause,
    table: Path,
    expected: Path,
    begin: Begin,
    launch: Launch,
    tmp_path: Path,
) -> None:
    """One is killed while it writes a shard to its disk, the next while it sends one.

    The shard on its way reaches the store when a third worker is already writing it.
    """
    engine = launch(name)
    target = ("--output", f"{store.root}/out", *store.flags)
    conversion = begin("--input", str(table), *target, *engine.start())
    with pause.until_it_is_read(conversion):
        kill_worker(engine)
        store.proxy.set(match=SHARD_PUT, latency_ms=LATE_MS)
    wait_for_shard_put(store, conversion)
    kill_worker(engine)
    sent = [name for name in store.proxy.requests() if re.search(SHARD_PUT, name)]
    store.proxy.set()
    ended = conversion.wait()
    assert set(sent) <= set(store.proxy.requests())  # sent again
    assert ended.code == 0, ended.output
    assert_stored(store, expected, tmp_path)


@pytest.mark.parametrize("name", ["flink-1.20", "spark"])
def test_without_retries_nothing_is_published(
    name: str,
    pause: Pause,
    table: Path,
    expected: Path,
    begin: Begin,
    launch: Launch,
    tmp_path: Path,
) -> None:
    engine = launch(name, retries=0)
    flags = ("--input", str(table), *engine.start())
    conversion = begin(*flags)
    with pause.until_it_is_read(conversion):
        kill_worker(engine)
    assert_not_published(conversion.wait(), "the engine failed: ")
    again = convert(tmp_path / "out", *flags)
    assert_the_same(again.dataset, expected)


def test_a_worker_process_of_the_direct_runner(pause: Pause, table: Path, begin: Begin) -> None:
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    conversion = begin("--input", str(table), *flags)
    with pause.until_it_is_read(conversion):
        below = psutil.Process(conversion.pid).children(recursive=True)
        reader = pause.reader()
        assert reader in below
        reader.kill()
    assert_not_published(conversion.wait(), "a worker process died")


@pytest.mark.parametrize("with_workers", [False, True], ids=["threads", "processes"])
def test_a_killed_driver_leaves_only_verified_datasets(
    with_workers: bool, pause: Pause, table: Path, expected: Path, begin: Begin, launch: Launch
) -> None:
    engine = launch("flink-1.20", with_workers)
    conversion = begin("--input", str(table), *engine.start())
    with pause.until_it_is_read(conversion):
        psutil.Process(conversion.pid).kill()
    end = time.monotonic() + 120
    while running_on_flink(engine.port) and time.monotonic() < end:
        time.sleep(0.5)
    conversion.kill()
    engine.stop()  # so that nothing is written anymore
    if (conversion.dataset / "_SUCCESS").exists():
        assert with_workers  # these need no driver
        assert recordmill("verify", conversion.dataset).code == 0
        assert_the_same(conversion.dataset, expected)
    else:
        assert recordmill("verify", conversion.dataset).code == 3


def assert_not_published(ended: Ended, why: str) -> None:
    """Asserts that a conversion failed with a short message and published nothing."""
    assert ended.code == 1, ended.output
    assert why in ended.output
    assert not TRACEBACK.search(ended.output), ended.output
    assert not (ended.dataset / "_SUCCESS").exists()
    assert not (ended.dataset / "dataset_info.json").exists()
    assert recordmill("verify", ended.dataset).code == 3
