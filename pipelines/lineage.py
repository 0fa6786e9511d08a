"""Runs a conversion, and sends OpenLineage events of its start and its end, if asked to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import run as run_conversion
from recordmill.pipelines.graph import Conversion
from recordmill.pipelines.run.run_record import (
    PUBLISHED,
    RunRecord,
    finished_record,
    running_record,
)
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas.errors import Interrupted, UsageError
from recordmill.schemas.findings import Finding
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.masking import masked
from recordmill.schemas.tables import TableFile
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import file_size

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

# How long the end of a run waits for events that are not sent yet.
TIMEOUT = 5.0

_NAMED = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT = "OPENLINEAGE__TRANSPORT"

# The client would add the address of the repository in the working folder, with its credentials.
_CONFIG = {"facets": {"source_code_location": {"disabled": True}}}


def _is_configured(environment: Mapping[str, str]) -> bool:
    """Returns whether environment variables of the OpenLineage client ask for events."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    is_named = any(environment.get(name) for name in _NAMED)
    return is_named or any(name.startswith(_TRANSPORT) for name in environment)


class Sender:
    """Sends events in their order, with the client's own configuration."""

    def __init__(self) -> None:
        self._events = SimpleQueue[Callable[[], "RunEvent"] | None]()
        self._errors = list[Exception]()
        self._made = self._sent = 0
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: Callable[[], RunEvent]) -> None:
        """Sends an event, which the thread makes: only it imports the client."""
        self._made += 1
        self._events.put(event)

    def close(self, timeout: float = TIMEOUT) -> str | None:
        """Waits for all events to be sent; returns a warning if some were not."""
        self._events.put(None)
        self._thread.join(timeout)
        left = self._made - self._sent
        if not left:
            return None
        late = TimeoutError(f"the endpoint did not answer within {timeout:g} s")
        why = _reason(self._errors[0] if self._errors else late)
        return f"{left} of {self._made} OpenLineage events were not sent: {why}"

    def _send_all(self) -> None:
        try:
            from openlineage.client import OpenLineageClient

            client = OpenLineageClient(config=_CONFIG)
            while (make := self._events.get()) is not None:
                self._emit(client, make)
            client.close(TIMEOUT)
        except Exception as error:  # noqa: BLE001 - transports raise exceptions of any type
            self._errors.append(error)

    def _emit(self, client: OpenLineageClient, make: Callable[[], RunEvent]) -> None:
        try:
            client.emit(make())
            self._sent += 1
        except Exception as error:  # noqa: BLE001 - transports raise exceptions of any type
            self._errors.append(error)


def _reason(error: Exception) -> str:
    if isinstance(error, UsageError):  # has its own remedy
        return str(error)
    text = str(error) or type(error).__name__
    remedy = "Check the endpoint"
    if isinstance(error, ModuleNotFoundError) and f"{error.name}".startswith("openlineage"):
        text, remedy = "its client is not installed", "Install recordmill[lineage]"
    return f"{masked(text)}. {remedy}, or set OPENLINEAGE_DISABLED=true."


# Each costs a request in an object store.
_MOST_FILES = 100


def run(
    command: Literal["convert", "forget"],
    job: Conversion,
    options: PipelineOptions,
    interrupt: Interrupt,
    submission: Callable[[str], None] = lambda text: None,
    stages: Callable[[beam.Pipeline, Conversion], object] | None = None,
) -> RunRecord:
    """Runs a conversion, and returns its record, with a warning if events were not sent.

    `interrupt`: records whether the process received a signal. `submission`: called with the web
    page of a job that was submitted to a service. `stages`: adds other stages than those of a
    conversion to a pipeline. Raises KeyboardInterrupt if the host program raised it.
    """
    if not _is_configured(os.environ):
        return run_conversion(job, options, interrupt, submission, stages)
    sender = Sender()
    event = partial(_event, command, job)
    sender.send(partial(event, running_record(job.context)))
    try:
        record = run_conversion(job, options, interrupt, submission, stages)
    except KeyboardInterrupt:
        error = Interrupted("interrupted", signal.SIGINT)
        sender.send(partial(event, finished_record(job.context, None, error)))
        sender.close()
        raise
    if record.state != "submitted":  # else the job goes on without this process
        sender.send(partial(event, record))
    try:
        warning = sender.close()
    except KeyboardInterrupt:  # the run has ended: a signal ends only the wait for the endpoint
        if interrupt.number is None:
            raise
        return record
    if not warning:
        return record
    return record.with_findings([Finding(kind="lineage", severity="warning", text=warning)])


def _event(command: Literal["convert", "forget"], job: Conversion, record: RunRecord) -> RunEvent:
    """Returns the event for the state of a run; called in the thread that sends it."""
    from recordmill.pipelines.lineage_events import RunSource, event_of

    published = record.state == PUBLISHED
    manifest = DatasetFolder.open(job.config.directory).manifest if published else None
    sizes = _sizes(job.tables.files) if published else []
    snapshots = job.tables.snapshots + (job.labels.snapshots if job.labels else ())
    source = RunSource(command, job.config, job.analyzer.base, sizes, dict(os.environ), snapshots)
    return event_of(source, record, manifest)


def _sizes(files: Sequence[TableFile]) -> list[int | None]:
    """Returns the sizes of tables; None for folders, and for too many files to ask for each."""
    if len(files) > _MOST_FILES:
        return [None] * len(files)
    return [
        None if INPUT_FORMATS[file.format].is_folder else file_size(file.path) for file in files
    ]
