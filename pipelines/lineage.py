"""Runs a conversion, and sends OpenLineage events of its start and its end, if asked to.

The official client is imported in functions that the sending thread calls: it is an extra, and slow
to import. Datasets have the names of https://openlineage.io/docs/spec/naming.
"""

from __future__ import annotations

import os
import posixpath
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import run as run_conversion
from recordmill.pipelines.graph import Conversion
from recordmill.pipelines.run.run_record import (
    PUBLISHED,
    RUNNING,
    RunRecord,
    finished_record,
    running_record,
)
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import Interrupted, UsageError
from recordmill.schemas.features import Feature
from recordmill.schemas.findings import Finding
from recordmill.schemas.manifest import Base, Manifest
from recordmill.schemas.masking import bare_url, masked
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import TableFile
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import file_size

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2 import RunFacet

# How long the end of a run waits for events that are not sent yet.
TIMEOUT = 5.0

_NAMED = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT = "OPENLINEAGE__TRANSPORT"

# The client would add the address of the repository in the working folder, with its credentials.
_CONFIG = {"facets": {"source_code_location": {"disabled": True}}}


def _is_configured(environment: Mapping[str, str]) -> bool:
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
        with self._noting_errors():
            from openlineage.client import OpenLineageClient

            client = OpenLineageClient(config=_CONFIG)
            for make in iter(self._events.get, None):
                with self._noting_errors():
                    client.emit(make())
                    self._sent += 1
            client.close(TIMEOUT)

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
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
    """Runs a conversion, and returns its record, with a warning if events were not sent."""
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
    published = record.state == PUBLISHED
    manifest = DatasetFolder.open(job.config.directory).manifest if published else None
    sizes = _sizes(job.tables.files) if published else []
    snapshots = job.tables.snapshots + (job.labels.snapshots if job.labels else ())
    source = RunSource(command, job.config, job.analyzer.base, sizes, dict(os.environ), snapshots)
    return _event_of(source, record, manifest)


def _sizes(files: Sequence[TableFile]) -> list[int | None]:
    """Returns the sizes of tables; None for folders, and for too many files to ask for each."""
    if len(files) > _MOST_FILES:
        return [None] * len(files)
    return [None if file.declared.is_folder else file_size(file.path) for file in files]


_WILDCARDS = "*?["


class DatasetName(NamedTuple):
    """The identity of a dataset in OpenLineage."""

    namespace: str  # the store: `file`, or a scheme with its authority, such as `s3://bucket`
    name: str


class Input(NamedTuple):
    """A dataset that a run reads."""

    name: DatasetName
    version: str = ""  # its version, or "" if it has none


def _name_of(path: str) -> DatasetName:
    """Returns the name of a file or folder.

    >>> _name_of("s3://birds/labels/day.csv")
    DatasetName(namespace='s3://birds', name='labels/day.csv')
    >>> _name_of("azfs://account/container/labels.csv")
    DatasetName(namespace='abfss://container@account.dfs.core.windows.net', name='labels.csv')
    >>> _name_of("/data/../labels.csv")
    DatasetName(namespace='file', name='/labels.csv')
    """
    if not layout.is_url(path):
        return DatasetName("file", os.path.abspath(path))
    scheme, _, rest = bare_url(path).partition("://")
    if scheme == "hdfs":  # the first part is a folder: the host is an option, not in the path
        return DatasetName("hdfs", f"/{rest.strip('/')}")
    authority, _, below = rest.partition("/")
    if scheme == "azfs":
        container, _, below = below.partition("/")
        scheme, authority = "abfss", f"{container}@{authority}.dfs.core.windows.net"
    return DatasetName(f"{scheme}://{authority}", below.strip("/") or "/")


def _tables_of(config: ConvertConfig, snapshots: Sequence[TableSnapshot] = ()) -> tuple[Input, ...]:
    """Returns the tables that a run reads, with those of labels, but without a base version.

    The files of a pattern are one dataset: the folder before the first wildcard. A Delta table is
    named by its path, an Iceberg one by its name.
    """
    known = {snapshot.input: snapshot for snapshot in snapshots}
    found = dict[Input, None]()
    for path in (*config.inputs, *((config.labels,) if config.labels else ())):
        if snapshot := known.get(path):
            kind, _, address = snapshot.pinned.rpartition("@")[0].partition(":")
            name = _name_of(address) if kind == "delta" else DatasetName(kind, address)
            found[Input(name, str(snapshot.id))] = None
        elif path != config.base:  # the only input of `forget`
            found[Input(_name_of(_folder_of_pattern(path)))] = None
    return tuple(found)


def _base_dataset(base: Base) -> Input:
    """Returns the dataset of a base version, with the name of all versions."""
    namespace, name = _name_of(base.directory)
    return Input(DatasetName(namespace, posixpath.dirname(name)), base.manifest.version)


def _folder_of_pattern(path: str) -> str:
    wildcard = min((at for at in map(path.find, _WILDCARDS) if at >= 0), default=len(path))
    return path if wildcard == len(path) else path[: path.rfind("/", 0, wildcard) + 1] or "."


_STATES = {RUNNING: "START", PUBLISHED: "COMPLETE", Interrupted.state: "ABORT"}
_INTEGRATION = "RECORDMILL"
_DEFAULT_NAMESPACE = "recordmill"


@dataclass(frozen=True)
class RunSource:
    """What the events of a run state of its job and its inputs."""

    command: Literal["convert", "forget"]
    config: ConvertConfig
    base: Base | None
    # The sizes of the files of the tables in bytes; None where they are unknown.
    sizes: Sequence[int | None]
    environment: Mapping[str, str]
    snapshots: Sequence[TableSnapshot] = ()


def _event_of(source: RunSource, record: RunRecord, manifest: Manifest | None = None) -> RunEvent:
    """Returns the event for the start or the end of a run."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job

    job_type = job_type_job.JobTypeJobFacet("BATCH", _INTEGRATION, source.command.upper())
    namespace = source.environment.get("OPENLINEAGE_NAMESPACE") or _DEFAULT_NAMESPACE
    time = record.started if record.state == RUNNING else record.finished
    event = RunEvent(
        eventTime=time.isoformat(),
        eventType=RunState[_STATES.get(record.state, "FAIL")],
        run=Run(str(UUID(record.run_id)), _run_facets(source.environment, record)),
        job=Job(namespace, f"{source.command}.{source.config.name}", {"jobType": job_type}),
        inputs=list(_inputs(source, record, manifest)),
        outputs=[_output(source.config, record, manifest)],
        producer=f"pkg:pypi/recordmill@{quote(record.versions['recordmill'])}",
    )
    _set_producer(event)
    return event


def _set_producer(event: RunEvent) -> None:
    """States who made the facets; the client's own function does so for the whole process."""
    groups: list[Any] = [event.run.facets, event.job.facets]
    groups += [group for one in event.inputs or () for group in (one.facets, one.inputFacets)]
    groups += [group for one in event.outputs or () for group in (one.facets, one.outputFacets)]
    for facet in (facet for group in groups for facet in group.values()):
        facet._producer = event.producer


def _run_facets(environment: Mapping[str, str], record: RunRecord) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run, tags_run

    tags = {"runner": record.runner}
    if record.state != RUNNING:
        tags["exit_code"] = str(record.exit_code)
    fields = [tags_run.TagsRunFacetFields(name, tags[name], _INTEGRATION) for name in tags]
    versions = record.versions
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            versions["apache-beam"], "Apache Beam", versions["recordmill"]
        ),
        "tags": tags_run.TagsRunFacet(fields),
        **_parent(environment),
    }
    if record.state not in (RUNNING, PUBLISHED):
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(record.message, "PYTHON")
    return facets


def _parent(environment: Mapping[str, str]) -> dict[str, RunFacet]:
    """Returns the run of the scheduler that started the command, if it is stated."""
    from openlineage.client.facet_v2 import parent_run

    parent = _run_in(environment, "OPENLINEAGE_PARENT_ID")
    if parent is None:
        return {}
    namespace, name, run = parent
    root_namespace, root_name, root = _run_in(environment, "OPENLINEAGE_ROOT_PARENT_ID") or parent
    top = parent_run.Root(parent_run.RootRun(root), parent_run.RootJob(root_namespace, root_name))
    job = parent_run.Job(namespace, name)
    return {"parent": parent_run.ParentRunFacet(parent_run.Run(run), job, top)}


def _run_in(environment: Mapping[str, str], variable: str) -> tuple[str, str, str] | None:
    value = environment.get(variable)
    if not value:
        return None
    try:
        namespace, name, run = value.rsplit("/", 2)  # a namespace may be an address
        return namespace, name, str(UUID(run))
    except ValueError as error:
        raise UsageError(
            f"{variable}: {value!r} names no run; expected NAMESPACE/JOB/UUID. Correct it."
        ) from error


def _inputs(
    source: RunSource, record: RunRecord, manifest: Manifest | None
) -> Iterator[InputDataset]:
    """Yields the tables, and the base version. Only rows of all tables together are counted."""
    tables = _tables_of(source.config, source.snapshots)
    # The rows of a run that appends include those of its base version.
    rows = None if source.config.append else record.rows
    for table in tables:
        yield _input(table, manifest is not None and len(tables) == 1, rows, source.sizes)
    if source.base:
        kept = sum(manifest.base.kept.values()) if manifest and manifest.base else None
        yield _input(_base_dataset(source.base), kept is not None, kept)


def _input(
    dataset: Input, is_counted: bool, rows: int | None, sizes: Sequence[int | None] = ()
) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, input_statistics_input_dataset

    version = dataset_version_dataset.DatasetVersionDatasetFacet(dataset.version)
    known = [size for size in sizes if size is not None]
    size = sum(known) if sizes and len(known) == len(sizes) else None
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rows, size, len(sizes) or None
    )
    return InputDataset(
        *dataset.name,
        facets={"version": version} if dataset.version else {},
        inputFacets={"inputStatistics": statistics} if is_counted else {},
    )


def _output(config: ConvertConfig, record: RunRecord, manifest: Manifest | None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        output_statistics_output_dataset,
        schema_dataset,
        tags_dataset,
    )

    name = _name_of(layout.join(config.output, config.name))
    if manifest is None:
        return OutputDataset(*name)
    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            feature, _type_of(shape), _description(manifest.classes.get(feature))
        )
        for feature, shape in manifest.dataset_schema.features.items()
    ]
    checksum = tags_dataset.TagsDatasetFacetFields(
        "manifest_sha256", record.manifest_sha256, _INTEGRATION
    )
    sizes = [shard.bytes for split in manifest.splits.values() for shard in split.shards]
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        record.records, sum(sizes), len(sizes)
    )
    return OutputDataset(
        *name,
        facets={
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(config.version),
            "schema": schema_dataset.SchemaDatasetFacet(fields),
            "tags": tags_dataset.TagsDatasetFacet([checksum]),
        },
        outputFacets={"outputStatistics": statistics},
    )


def _type_of(feature: Feature) -> str:
    """Returns the type of a feature with its shape, as in `float[?, 4]`."""
    if feature.shape is None:
        return feature.kind.value
    return f"{feature.kind.value}[{', '.join(str(size or '?') for size in feature.shape)}]"


def _description(classes: Sequence[str] | None) -> str | None:
    return f"class label, {len(classes):,} classes" if classes else None
