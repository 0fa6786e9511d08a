"""Start and end of processes: allocators that return memory, workers that end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from recordmill.pipelines.run import startup
from recordmill.pipelines.run.startup import limit_allocator_caches

ENDS_SECONDS = 20

WORKER = """
import os, sys, time
from recordmill.pipelines.run.startup import end_with_parent
end_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(120)
"""

PARENT = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
sys.stdin.read(1)
os._exit(9)
"""

BLOCKS = """
import os, resource, sys
from recordmill.pipelines.run import startup
from recordmill.pipelines.run.startup import limit_allocator_caches
limit_allocator_caches()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * 2**20 for _ in range(16)]  # each smaller than a huge page
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
found = [faults() for _ in range(10)]
print(max(found[5:]) < 1000)
"""


def test_a_worker_ends_soon_after_its_parent() -> None:
    command = [sys.executable, "-c", PARENT, WORKER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout
        worker = psutil.Process(int(parent.stdout.readline()))
        assert worker.ppid() == parent.pid
        time.sleep(0.5)
        assert worker.is_running()  # for as long as its parent is
        parent.kill()
        worker.wait(ENDS_SECONDS)


def test_the_environment_selects_allocators_that_return_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in startup._ALLOCATOR_LIMITS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    limit_allocator_caches()

    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    assert os.environ["MALLOC_ARENA_MAX"] == "2"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a parameter of glibc")
@pytest.mark.parametrize(
    ("said", "kept"),
    [({}, "True"), ({"MALLOC_MMAP_THRESHOLD_": "65536"}, "False")],
    ids=["by default", "if set in the environment"],
)
def test_freed_megabytes_are_used_again(said: dict[str, str], kept: str) -> None:
    """Mapping them again would clear 4,096 pages."""
    names = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKS], capture_output=True, text=True, env=environment | said
    )
    assert ended.stdout.strip() == kept, ended.stderr


def test_allocators_chosen_by_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    for name in startup._MALLOPT:
        monkeypatch.setenv(name, "1")

    limit_allocator_caches()

    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"
    assert os.environ["MALLOC_ARENA_MAX"] == "8"
    assert {os.environ[name] for name in startup._MALLOPT} == {"1"}
