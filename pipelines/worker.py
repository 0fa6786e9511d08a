"""`recordmill-worker`: runs Beam's Python worker without containers.

    recordmill-worker --pool 50000       a pool that starts workers: --environment_type=EXTERNAL
    recordmill-worker --id … --…         one worker, started by a task manager with
                                         --environment_type=PROCESS

The workers of Beam's own pool get no pipeline options, and so no credentials of object stores. This
worker requests them from the engine, as the boot program in Beam's containers does. It installs
nothing: recordmill must be installed on each machine.

The pool forks workers from a process that has already imported all modules. Spark requests a new
worker in each stage, and imports take seconds.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing.process import BaseProcess

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

from recordmill.pipelines.console.terminal import print_error
from recordmill.pipelines.engines import beam_patches
from recordmill.pipelines.run.startup import limit_allocator_caches

_HARNESS = "apache_beam.runners.worker.sdk_worker_main"
_PROVISION_SECONDS = 60
_STOP_SECONDS = 5
# gRPC does not support forks of a process that uses it, so a server without threads forks workers:
# https://github.com/grpc/grpc/blob/master/doc/fork_support.md
_FORKING = multiprocessing.get_context("forkserver")
# Flags that engines pass to a worker: https://s.apache.org/beam-fn-api-container-contract
_CONTRACT = (
    "id", "logging_endpoint", "artifact_endpoint", "provision_endpoint", "control_endpoint",
    "semi_persist_dir",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Serves a pool of workers, or runs a single worker in this process."""
    flags = _parser().parse_known_args(argv)[0]
    limit_allocator_caches()
    if flags.pool is None:
        _work(flags)
    else:
        _serve(flags.host, flags.pool)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="recordmill-worker", allow_abbrev=False)
    parser.add_argument("--pool", type=int, metavar="PORT", help="serve workers on this port")
    parser.add_argument("--host", default="127.0.0.1", help="where the pool listens")
    for name in _CONTRACT:
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    return parser


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """A gRPC service that forks a process for each worker that an engine requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, BaseProcess] = {}

    def StartWorker(  # noqa: N802 - the name is part of the protocol
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Starts a worker process; the `error` of the response is empty if it was started."""
        endpoints = ("logging", "artifact", "provision", "control")
        urls = [f"--{n}_endpoint={getattr(request, f'{n}_endpoint').url}" for n in endpoints]
        arguments = [f"--id={request.worker_id}", *urls]
        worker = _FORKING.Process(target=main, args=(arguments,))
        try:
            # Under the lock, so that `end` does not miss a worker that is being started.
            with self._lock:
                worker.start()
                self._workers[request.worker_id] = worker
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(error))
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Ends a worker process."""
        with self._lock:
            worker = self._workers.pop(request.worker_id, None)
        if worker:
            _end([worker])
        return beam_fn_api_pb2.StopWorkerResponse()

    def end(self) -> None:
        """Ends all worker processes."""
        with self._lock:
            workers = list(self._workers.values())
            self._workers.clear()
        _end(workers)


def _serve(host: str, port: int) -> None:
    """Serves workers until SIGTERM or SIGINT, and then ends all of them.

    Raises RuntimeError if the port is in use.
    """
    # Forked workers share the memory of Beam and TensorFlow, which are imported once.
    _FORKING.set_forkserver_preload(["recordmill.pipelines.worker_imports"])
    pool = Pool()
    server = grpc.server(ThreadPoolExecutor())
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"{host}:{port}")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    print_error(f"recordmill-worker: serving workers at {host}:{port}")
    stopped.wait()
    server.stop(_STOP_SECONDS).wait()
    pool.end()


def _work(flags: argparse.Namespace) -> None:
    """Runs Beam's worker with the pipeline options of the engine, and then exits the process.

    It exits without Python's finalization, which would wait for the decoding subprocesses. These
    end with their parent.
    """
    channel = grpc.insecure_channel(flags.provision_endpoint)
    answer = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=[("worker_id", flags.id)],
        timeout=_PROVISION_SECONDS,
        wait_for_ready=True,
    )
    channel.close()
    os.environ.update(_worker_environment(flags, answer.info))
    beam_patches.apply()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads a worker's output
    code = 1
    try:
        import_module(_HARNESS).main([])
        code = 0
    except Exception:  # noqa: BLE001 - the process exits below, so any error is printed here
        print_error(traceback.format_exc())
    finally:
        logging.shutdown()
        os._exit(code)


def _worker_environment(
    flags: argparse.Namespace, info: beam_provision_api_pb2.ProvisionInfo
) -> dict[str, str]:
    """Returns the environment variables that Beam's worker reads.

    `info` is the engine's answer, whose endpoints override those of the flags.
    """

    def endpoint(given: endpoints_pb2.ApiServiceDescriptor, flag: str) -> str:
        url = given.url or flag
        return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))

    return {
        "WORKER_ID": flags.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": endpoint(info.logging_endpoint, flags.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": endpoint(info.control_endpoint, flags.control_endpoint),
        "SEMI_PERSISTENT_DIRECTORY": flags.semi_persist_dir or "/tmp",  # noqa: S108 - Beam's own
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def _end(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(_STOP_SECONDS)
        if worker.is_alive():
            worker.kill()
            worker.join()


if __name__ == "__main__":
    sys.exit(main())
