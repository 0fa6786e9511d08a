"""A service process answers requests, reports its death, and ends with its parent.

Its two uses have tests of their own: the verifier process, and writer processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.workers.service_process import ServiceProcess

ROOT = Path(__file__).parents[4]
ENDS_SECONDS = 60

# A service with two connections, of which each has a process.
FORKS = """
import os, sys
from multiprocessing.connection import Connection
from recordmill.transforms.workers.service_process import answer_all, end_with_parent

known = []

def double(number): return known[-1] * number if known else 2 * number

def fail(error): raise error

def serve(descriptors):
    connections = [Connection(descriptor) for descriptor in descriptors]
    assert connections[0].recv() == "first"
    for connection in connections:
        if os.fork() == 0:
            [other.close() for other in connections if other is not connection]
            end_with_parent()
            services = {"double": double, "fail": fail, "use": known.append, "pid": os.getpid}
            answer_all(connection, {**services, "variable": os.environ.get, "exit": os._exit})
            os._exit(0)
    [connection.close() for connection in connections]
    for _ in connections:
        status = os.waitstatus_to_exitcode(os.wait()[1])
        if status:
            break
    os._exit(status)
"""


@pytest.fixture(params=["interpreter", "fork"])
def service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[ServiceProcess]:
    (tmp_path / "forks.py").write_text(FORKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    if request.param == "fork":
        monkeypatch.setenv("OF_SERVICE", "1")
        names: dict[str, Any] = {}
        exec(FORKS, names)  # noqa: S102 - the module above
        started = ServiceProcess(names["serve"], 2)
    else:
        started = ServiceProcess("forks", 2, {"PATH": "not this", "OF_SERVICE": "1"})
    started.send("first")
    yield started
    started.end()


def test_functions_return_or_raise(service: ServiceProcess) -> None:
    assert [service.request("it", "double", number) for number in range(4)] == [0, 2, 4, 6]
    for error, expected in (
        (OSError(2, "gone"), OSError),
        (RecordmillError("x"), RecordmillError),
        (KeyError("x"), RuntimeError),
    ):
        with pytest.raises(expected, match=r"gone|x"):
            service.request("it", "fail", error)
    assert service.is_alive


def test_a_request_can_go_to_each_connection(service: ServiceProcess) -> None:
    service.request_each("use", 7)
    assert [service.request("it", "double", 1) for _ in range(4)] == [7] * 4


def test_variables_of_the_parent_have_precedence(service: ServiceProcess) -> None:
    assert service.request("it", "variable", "OF_SERVICE") == "1"
    assert service.request("it", "variable", "PATH") == os.environ["PATH"]


def test_the_exit_code_of_a_fork_is_reported(service: ServiceProcess) -> None:
    with pytest.raises(RecordmillError, match=r"^the writer has died: exit code 3$"):
        service.request("the writer", "exit", 3)
    assert not service.is_alive


def test_forks_have_ended_when_end_returns(service: ServiceProcess) -> None:
    forks = {service.request("it", "pid") for _ in range(4)}
    assert len(forks) == 2
    service.end()
    assert not any(map(psutil.pid_exists, forks))


@pytest.mark.parametrize("start", ["'forks'", "__import__('forks').serve"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_forks_end_with_the_process_that_started_the_service(
    end: signal.Signals, start: str, tmp_path: Path
) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from recordmill.transforms.workers.service_process import ServiceProcess; "
        f"s = ServiceProcess({start}, 2); s.send('first'); "
        "print(s.pid, s.request('', 'pid'), s.request('', 'pid'), flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pids = map(int, parent.stdout.readline().split())
        started = [psutil.Process(pid) for pid in pids]
        parent.send_signal(end)
    _, alive = psutil.wait_procs(started, ENDS_SECONDS)
    assert alive == []
