"""A fake Dataflow service for the real Dataflow client.

    python dataflow_service.py FOLDER PORT

It accepts jobs over HTTP like the API v1b3, stores each as FOLDER/job-N.json, and runs it: it
fetches the staged pipeline, replaces the environment of the workers by this process, and passes it
to Beam's in-process runner. So the pipeline translated for Dataflow is the one that runs. Needs the
extra [gcp]. It also issues tokens, for a service account whose key says so.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

_TOKEN = {"access_token": "local", "expires_in": 3600, "token_type": "Bearer"}


class Service:
    """The submitted jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[dict[str, Any]] = []

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        """Accepts a job, starts it, and returns it in the format of the service."""
        number = len(self.jobs) + 1
        (self.folder / f"job-{number}.json").write_text(json.dumps(job, indent=2))
        taken = {
            "id": f"job-{number}",
            "name": job["name"],
            "clientRequestId": job["clientRequestId"],
            "currentState": "JOB_STATE_RUNNING",
        }
        self.jobs.append(taken)
        options = job["environment"]["sdkPipelineOptions"]["options"]
        threading.Thread(target=self._run, args=(taken, options), daemon=True).start()
        return taken

    def _run(self, taken: dict[str, Any], options: dict[str, Any]) -> None:
        try:
            run_staged(options["pipelineUrl"])
        except Exception:
            logging.exception("%s failed", taken["id"])
            taken["currentState"] = "JOB_STATE_FAILED"
        else:
            taken["currentState"] = "JOB_STATE_DONE"


def run_staged(url: str) -> None:
    """Runs a staged pipeline in this process."""
    with FileSystems.open(url) as stream:
        pipeline = beam_runner_api_pb2.Pipeline.FromString(stream.read())
    for place in pipeline.components.environments.values():
        place.urn, place.payload = python_urns.EMBEDDED_PYTHON, b""
        del place.dependencies[:]
    options = PipelineOptions(["--project=local-project"])
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    runner = fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))
    runner.run_via_runner_api(pipeline, options).wait_until_finish()


class Handler(BaseHTTPRequestHandler):
    """Handles requests of the client."""

    service: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            self._answer(_TOKEN)
        elif self.path.split("?")[0].endswith("/jobs"):
            self._answer(self.service.create(json.loads(body)))
        else:
            self.send_error(404)

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.endswith("/messages"):
            self._answer({})
        else:
            number = int(path.rpartition("-")[2])
            self._answer(self.service.jobs[number - 1])

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing."""


def main() -> None:
    """Serves until the process is killed."""
    Handler.service = Service(Path(sys.argv[1]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
