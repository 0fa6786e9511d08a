"""Patches of Beam, which are applied by functions; importing this module changes nothing.

`apply()` is called by the command and by recordmill's worker processes, `applied()` by functions of
the library. With Beam 2.77, a run of one row takes 0.6 s of CPU more without these patches: 0.3 for
the views of options, 0.3 for the specifications of DoFns. Smaller gains are not worth a patch.

Each patch names the change in Beam that would make it unnecessary.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.local_job_service import SubprocessSdkWorker
from apache_beam.runners.worker import sdk_worker, statesampler
from apache_beam.transforms import userstate

from recordmill.pipelines.engines.runners import dead_worker_message

View = TypeVar("View", bound=PipelineOptions)

_make_view: Callable[[PipelineOptions, type[Any]], Any] = PipelineOptions.view_as
_find_specs: Callable[[beam.DoFn], Any] = userstate.get_dofn_specs
_make_sampler: Callable[..., Any] = statesampler.StateSampler

_views: WeakKeyDictionary[PipelineOptions, dict[type[Any], Any]] = WeakKeyDictionary()
_specs: WeakKeyDictionary[type[beam.DoFn], Any] = WeakKeyDictionary()

_END_SECONDS = 1

# The in-process runner sends what a step has written to a buffer every second, from a thread that
# does not wait for the end of an element: the receiver decodes half of it, and allocates whatever
# the next bytes say. Without a limit, buffers are sent when they are full. Unnecessary once
# `TimeBasedBufferingClosableOutputStream` sends whole elements only; no issue is known.
_NO_TIME_LIMIT = 0

# The in-process runner walks all objects of a side input to find its size in its cache, which takes
# longer than to decode the side input again for the next bundle. No issue is known.
_NO_STATE_CACHE = 0

# At its end, a bundle waits for the thread that samples its steps, which sleeps for up to 200 ms.
# Nothing else runs then in the in-process runner: a run loses 0.1 s on average, after shards are
# written and after they are published. Unnecessary once `StateSampler.stop` wakes the thread; no
# issue is known.
_SAMPLING_MS = 10

_WORKER = (
    "from recordmill.pipelines.run.startup import end_with_parent; end_with_parent({parent}); "
    "from recordmill.pipelines.console.logs import leave_logs_to_the_runner as quiet; quiet(); "
    "from recordmill.pipelines.engines.beam_patches import apply; apply(); "
    "import sys; from apache_beam.runners.worker.sdk_worker_main import main; main(sys.argv)"
)


def apply() -> None:
    """Applies the patches until the process ends; calling it again changes nothing."""
    for owner, name, value in _patches():
        setattr(owner, name, value)


@contextmanager
def applied() -> Iterator[None]:
    """Applies the patches while the body runs, in a program that may also use Beam itself."""
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in _patches()]
    apply()
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _patches() -> tuple[tuple[Any, str, Any], ...]:
    handlers = worker_handlers.WorkerHandler._registered_environments
    watched = {**handlers, python_urns.SUBPROCESS_SDK: (WatchedWorkerHandler, bytes)}
    return (
        (PipelineOptions, "view_as", _cached_view),
        (userstate, "get_dofn_specs", _cached_specs),
        (sdk_worker, "print", _print_nothing),  # hides the built-in function
        (worker_handlers.WorkerHandler, "_registered_environments", watched),
        (worker_handlers, "DATA_BUFFER_TIME_LIMIT_MS", _NO_TIME_LIMIT),
        (worker_handlers, "STATE_CACHE_SIZE_MB", _NO_STATE_CACHE),
        (statesampler, "StateSampler", partial(_make_sampler, sampling_period_ms=_SAMPLING_MS)),
    )


def _cached_view(options: PipelineOptions, kind: type[View]) -> View:
    """Returns a view of the pipeline options, from a cache; all views share their values.

    Beam builds an argparse parser for each view, and requests 900 views: one for each type that it
    compares, for example. https://github.com/apache/beam/issues/26034 (parse the pipeline options
    only once) would make this unnecessary.
    """
    known = _views.setdefault(options, {})
    view: View | None = known.get(kind)
    if view is not None and view._all_options is options._all_options:
        return view
    made: View = _make_view(options, kind)
    known[kind] = made
    return made


def _cached_specs(dofn: beam.DoFn) -> Any:
    """Returns the state and timer specifications of a DoFn, two sets, from a cache by class.

    Beam searches all methods of each DoFn for them eight times, and again in each worker.
    Unnecessary once `userstate.get_dofn_specs` caches its result; no issue is known.
    """
    # `beam.Map` makes the method that it is called with an attribute of the object.
    if any(isinstance(value, MethodType) for value in vars(dofn).values()):
        return _find_specs(dofn)
    known = _specs.get(type(dofn))
    if known is None:
        known = _specs[type(dofn)] = _find_specs(dofn)
    return known


def _print_nothing(*_: object, **__: object) -> None:
    """Replaces `print` in Beam's worker, which prints tracebacks and nothing else.

    The worker prints the traceback of a failed step to standard error without using logging, logs
    it, and sends it to the runner; here the command's last message reports it. Unnecessary once
    `SdkHarness._execute` only logs; https://github.com/apache/beam/pull/5020 (remove redundant
    traceback logging) was closed.
    """


class WatchedWorkerHandler(worker_handlers.SubprocessSdkWorkerHandler):
    """Runs a worker process of the in-process runner; if the process dies, the run fails.

    Beam waits forever for the answers of a dead worker. Unnecessary once
    `SubprocessSdkWorkerHandler` fails the pending instructions when its process ends; no issue is
    known.
    """

    def start_worker(self) -> None:
        """Starts the process, and a thread that waits for its exit."""
        code = _WORKER.format(parent=os.getpid())
        command = f"exec {shlex.join([sys.executable, '-c', code])}".encode()
        self.worker = SubprocessSdkWorker(
            command, self.control_address, self.provision_info, self.worker_id
        )
        self.worker_thread = threading.Thread(name="run_worker", target=self._run, daemon=True)
        self.worker_thread.start()

    def stop_worker(self) -> None:
        """Waits for the process to exit, for a limited time.

        A process that is interrupted during start-up never connects to the runner, and exits only
        with its parent.
        """
        self.worker_thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            self.worker.run()
        except RuntimeError as death:  # its message has the exit code
            _answer_for_dead_worker(self.control_conn, dead_worker_message(str(death)))


def _answer_for_dead_worker(connection: Any, error: str) -> None:
    """Answers all pending and all future requests to a worker with an error.

    `connection`: Beam's `ControlConnection` to the worker.
    """
    ask = connection.push

    def answer(request: Any) -> Any:
        if request is worker_handlers.BeamFnControlServicer._DONE_MARKER:
            return ask(request)
        return worker_handlers.ControlFuture(request.instruction_id, failure)

    failure = beam_fn_api_pb2.InstructionResponse(error=error)
    connection.push = answer
    for future in list(connection._futures_by_id.values()):
        future.set(failure)
