"""Runs recordmill many times in separate processes, without importing everything each time.

A process that has imported everything forks a child per run. A child can be ended at its n-th
step: a step is an audit event of Python about a file in the output folder, raised before the
action. The program itself is unchanged, and no step can be missed.

As in a user's run, separate processes verify and decode. They are forks of the run, in which all is
already imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]

_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1 << 1
_CAP_DAC_READ_SEARCH = 1 << 2

_PR_SET_CHILD_SUBREAPER = 36

_MET = "the verifier is alive"
"""A line among a run's steps, written as the signal comes."""

_OUTLIVE_SECONDS = 20
"""How soon after a run all its processes have to be gone."""

_STEPS = {
    "open": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (0, 1),
    "os.truncate": (0,),
    "os.listdir": (0,),
    "os.scandir": (0,),
}


@dataclass(frozen=True)
class Order:
    """A command to run, and the signal that ends it.

    Attributes:
        arguments: of the recordmill command.
        output: the folder whose steps are counted.
        report: file for the child's output and steps.
        step: number of the step before which the signal is sent, from 1; 0 for none.
        number: the signal.
        seconds: delay after which the signal is sent instead; 0 for never.
        clock: seconds by which the wall clock jumps at that step, instead of a signal.
        plain: whether file permissions apply even to root.
    """

    arguments: tuple[str, ...]
    output: str
    report: str
    step: int = 0
    number: int = signal.SIGKILL
    seconds: float = 0
    clock: float = 0
    plain: bool = False


@dataclass(frozen=True)
class Ended:
    """The result of a child.

    Attributes:
        code: its exit code; negative for a signal that killed it.
        text: its output.
        steps: descriptions of its steps.
        met_verifier: whether the verifier process was alive when the signal was sent.
    """

    code: int
    text: str
    steps: list[str]
    met_verifier: bool


class PreforkedRunner:
    """A process that forks a child per order, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.preforked_runner"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._lock = threading.Lock()

    def run(self, order: Order) -> Ended:
        """Runs an order."""
        with self._lock:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(json.dumps(asdict(order)) + "\n")
            self._process.stdin.flush()
            code, outliving = map(int, self._process.stdout.readline().split())
        text = Path(order.report).read_text(errors="replace")
        assert outliving == 0, f"{outliving} of its processes outlived the run: {text}"
        lines = Path(f"{order.report}.steps").read_text().splitlines()
        return Ended(code, text, [line for line in lines if line != _MET], _MET in lines)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)


def on_all(
    runners: list[PreforkedRunner],
    cases: Iterable[Any],
    play: Callable[[Any, PreforkedRunner], tuple[str, list[str]]],
) -> dict[str, list[str]]:
    """Runs each case on a free runner; returns the failures by case."""
    free: Queue[PreforkedRunner] = Queue()
    for runner in runners:
        free.put(runner)

    def one(case: object) -> tuple[str, list[str]]:
        runner = free.get()
        try:
            return play(case, runner)
        finally:
            free.put(runner)

    with ThreadPoolExecutor(len(runners)) as executor:
        return {name: faults for name, faults in executor.map(one, cases) if faults}


def main() -> None:
    """Forks a child for each order of standard input, and prints its exit code."""
    sys.stdout, answers = sys.stderr, sys.stdout
    time.time = _Clock.now  # before Beam keeps it as a default and pickles it by its name
    from recordmill.pipelines.console.logs import set_up_logs

    set_up_logs()
    import recordmill.pipelines.commands.convert
    import recordmill.pipelines.commands.forget
    import recordmill.pipelines.commands.verify
    import recordmill.transforms.verification.verify_shard  # noqa: F401 - once for all children
    from recordmill.transforms.verification.tensorflow_reader import load
    from recordmill.transforms.workers.process import collect_garbage
    from tests.conftest import spare_work_of_beam

    spare_work_of_beam()
    load()
    collect_garbage()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whatever outlives a run is a child here
    for line in sys.stdin:
        order = Order(**json.loads(line))
        child = os.fork()
        if child == 0:
            _execute(order)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), _reap_rest(), file=answers, flush=True)


def _reap_rest() -> int:
    """Waits for the processes that a run left behind, and returns how many had to be killed."""
    deadline = time.monotonic() + _OUTLIVE_SECONDS
    killed = set[int]()
    with contextlib.suppress(ChildProcessError):  # there is none any more
        while True:
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
            time.sleep(0.002)
            if time.monotonic() > deadline:
                children = Path("/proc/thread-self/children").read_text().split()
                killed |= set(map(int, children))
                for child in killed:
                    os.kill(child, signal.SIGKILL)
    return len(killed)


def _execute(order: Order) -> None:
    from recordmill.pipelines.command_line import main as recordmill
    from recordmill.pipelines.run.startup import _exit_on_signals

    os.setsid()
    _exit_on_signals()  # as `python -m recordmill` does first
    report = os.open(order.report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(report, 1)
    os.dup2(report, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    _Steps(order, _fork_services())
    if order.plain:
        _check_permissions()
    if order.seconds:
        threading.Timer(order.seconds, os.kill, (os.getpid(), order.number)).start()
    try:
        code = recordmill(list(order.arguments))
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        print(f"Traceback: {error!r}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _check_permissions() -> None:
    """Drops the capability to bypass file permissions, by capset(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for i in range(3):  # effective, permitted, inheritable; each bit stands in the first three
        sets[i] &= ~(_CAP_DAC_OVERRIDE | _CAP_DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0


class _ForkedService:
    """Replaces `subprocess.Popen` for a service process: a fork of the run, not a new Python.

    It is forked before the run has threads, and waits for the file descriptors to serve.
    """

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        self._is_started = False
        self._code: int | None = None
        self._waiting = threading.RLock()  # a child can be waited for only once
        self._run, service = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._serve(module, service)
        service.close()

    def start(self, *, stdin: int, pass_fds: Sequence[int], **_: object) -> _ForkedService:
        """Serves the file descriptors of the program that the run starts."""
        socket.send_fds(self._run, [b"."], [stdin, *pass_fds])
        self._run.close()
        self._is_started = True
        return self

    @staticmethod
    def _serve(module: ModuleType, run: socket.socket) -> None:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2 and descriptor != run.fileno():
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(descriptor)
        _, descriptors, *_ = socket.recv_fds(run, 1, 16)
        if not descriptors:  # the run ended without it
            os._exit(0)
        os.dup2(descriptors[0], 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            module.serve(descriptors[1:])
        finally:
            os._exit(1)

    def kill(self) -> None:
        """Like the method of `subprocess.Popen`."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Like the method of `subprocess.Popen`."""
        with self._waiting:
            if self._code is None and (found := os.waitpid(self.pid, os.WNOHANG)) != (0, 0):
                self._code = os.waitstatus_to_exitcode(found[1])
            return self._code

    def wait(self, timeout: float = math.inf) -> int:
        """Like the method of `subprocess.Popen`."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.name, timeout)
            time.sleep(0.001)
        return code

    def is_running(self) -> bool:
        """Returns whether the run has started it, and it has not ended."""
        return self._is_started and self.poll() is None


def _fork_services() -> _ForkedService:
    """Forks the verifier and the decoder of a run, and returns the verifier.

    A second decoder is started as by users.
    """
    from recordmill.transforms.verification import verifier_process
    from recordmill.transforms.workers import sandbox, service_process

    sandbox.MEMORY_BYTES = resource.RLIM_INFINITY  # libraries that only a fork has take them
    verifier, decoder = (_ForkedService(module) for module in (verifier_process, sandbox))
    free = [verifier, decoder]

    def started(command: Sequence[str], **options: Any) -> Any:
        for service in free:
            if service.name in command[-1]:
                free.remove(service)
                return service.start(**options)
        return subprocess.Popen(command, **options)

    names = ("PIPE", "DEVNULL", "TimeoutExpired")
    others = {name: getattr(subprocess, name) for name in names}
    vars(service_process)["subprocess"] = SimpleNamespace(Popen=started, **others)
    return verifier


class _Clock:
    """Replaces `time.time` by a clock that can be set."""

    jump = 0.0

    @classmethod
    def now(cls) -> float:
        """Like the function of `time`."""
        return time.time_ns() / 1e9 + cls.jump


class _Steps:
    """Counts steps and sends the signal of the order before one of them."""

    def __init__(self, order: Order, verifier: _ForkedService) -> None:
        self._order = order
        self._verifier = verifier
        self._count = 0
        self._process = os.getpid()  # a fork of it, the verifier, takes no steps on disk
        self._lock = threading.Lock()
        self._log = os.open(f"{order.report}.steps", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        sys.addaudithook(self._handle)

    def _handle(self, event: str, arguments: Sequence[object]) -> None:
        places = _STEPS.get(event)
        if places is None or os.getpid() != self._process:
            return
        paths = [os.fspath(a) for i in places if isinstance(a := arguments[i], str | os.PathLike)]
        if not any(str(path).startswith(self._order.output) for path in paths):
            return
        with self._lock:
            self._count += 1
            os.write(self._log, f"{event} {' '.join(map(str, paths))}\n".encode())
            if self._count == self._order.step:
                self._interrupt()

    def _interrupt(self) -> None:
        if self._order.clock:
            _Clock.jump = self._order.clock
        else:
            if self._verifier.is_running():
                os.write(self._log, f"{_MET}\n".encode())
            os.kill(os.getpid(), self._order.number)


if __name__ == "__main__":
    main()
