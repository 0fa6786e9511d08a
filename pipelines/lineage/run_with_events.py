"""Runs a conversion, and sends OpenLineage events of its start and its end, if asked to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import run as run_conversion
from recordmill.pipelines.graph import Conversion
from recordmill.pipelines.lineage.sender import Sender, is_configured
from recordmill.pipelines.run.run_record import (
    PUBLISHED,
    RunRecord,
    finished_record,
    running_record,
)
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas.errors import Interrupted
from recordmill.schemas.findings import Finding
from recordmill.schemas.tables import TableFile
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.storage.formats import FORMATS

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

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
    if not is_configured(os.environ):
        return run_conversion(job, options, interrupt, submission, stages)
    sender, event = Sender(), partial(_event, command, job)
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
    from recordmill.pipelines.lineage.events import RunSource, event_of

    published = record.state == PUBLISHED
    manifest = Dataset.open(job.config.directory).manifest if published else None
    sizes = _sizes(job.tables.files) if published else []
    snapshots = job.tables.snapshots + (job.labels.snapshots if job.labels else ())
    source = RunSource(command, job.config, job.analyzer.base, sizes, dict(os.environ), snapshots)
    return event_of(source, record, manifest)


def _sizes(files: Sequence[TableFile]) -> list[int | None]:
    """Returns the sizes of tables; None for folders, and for too many files to ask for each."""
    if len(files) > _MOST_FILES:
        return [None] * len(files)
    return [None if FORMATS[file.format].is_folder else file_size(file.path) for file in files]
