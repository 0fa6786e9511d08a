"""Watches the worker processes of Beam's in-process runner: one that dies fails the run.

Beam itself waits for ever for the answers of a dead worker.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.local_job_service import SubprocessSdkWorker

from recordmill.pipelines.engines.failure import dead_worker

_END_SECONDS = 1

_QUIET = (
    "from recordmill.pipelines.worker_end import end_with_parent; end_with_parent({parent}); "
    "from recordmill.pipelines.console.logs import leave_logs_to_the_runner as quiet; quiet(); "
    "import sys, recordmill.pipelines.engines.worker_tracebacks; "
    "from apache_beam.runners.worker.sdk_worker_main import main; main(sys.argv)"
)


@worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class WatchedWorkerHandler(worker_handlers.SubprocessSdkWorkerHandler):
    """Runs a worker process, and answers for it once it is dead."""

    def start_worker(self) -> None:
        """Starts the process, and the thread that waits for its end."""
        code = _QUIET.format(parent=os.getpid())
        command = f"exec {shlex.join([sys.executable, '-c', code])}".encode()
        self.worker = SubprocessSdkWorker(
            command, self.control_address, self.provision_info, self.worker_id
        )
        self.worker_thread = threading.Thread(name="run_worker", target=self._run, daemon=True)
        self.worker_thread.start()

    def stop_worker(self) -> None:
        """Waits for the end of the process, but not for one that never heard of this runner.

        It connects too late if the run is interrupted as it starts. It ends with this process.
        """
        self.worker_thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            self.worker.run()
        except RuntimeError as death:  # says with which code it ended
            answer_for_dead_worker(self.control_conn, dead_worker(str(death)))


def answer_for_dead_worker(connection: Any, error: str) -> None:
    """Answers every question that a worker was asked, and every one to come, with an error.

    Args:
        connection: Beam's `ControlConnection` to the worker.
        error: what the run is to fail with.
    """
    ask = connection.push

    def answer(request: Any) -> Any:
        if request is worker_handlers.BeamFnControlServicer._DONE_MARKER:
            return ask(request)
        return worker_handlers.ControlFuture(request.instruction_id, refusal)

    refusal = beam_fn_api_pb2.InstructionResponse(error=error)
    connection.push = answer
    for future in list(connection._futures_by_id.values()):
        future.set(refusal)
