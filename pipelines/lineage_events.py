"""OpenLineage events of a run, as values of the official client's classes.

This module imports the client, and is therefore imported only if events are to be sent.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    tags_dataset,
    tags_run,
)

from recordmill.pipelines.run.run_record import PUBLISHED, RUNNING, RunRecord
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import Interrupted, UsageError
from recordmill.schemas.features import Feature
from recordmill.schemas.manifest import Base, Manifest
from recordmill.schemas.masking import bare_url
from recordmill.schemas.plan import TableSnapshot

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
    """Returns the name of a file or folder by OpenLineage's naming conventions.

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

    The files of a pattern are one dataset: the folder before the first wildcard.
    """
    known = {snapshot.input: snapshot for snapshot in snapshots}
    labels = () if config.labels is None else (config.labels,)
    # The only input of `forget` is its base version.
    paths = [path for path in (*config.inputs, *labels) if path != config.base]
    found = (
        _lakehouse_table(known[path])
        if path in known
        else Input(_name_of(_folder_of_pattern(path)))
        for path in paths
    )
    return tuple(dict.fromkeys(found))


def _lakehouse_table(snapshot: TableSnapshot) -> Input:
    """Returns a table with its snapshot: a Delta table by its path, an Iceberg one by its name."""
    kind, _, address = snapshot.pinned.rpartition("@")[0].partition(":")
    name = _name_of(address) if kind == "delta" else DatasetName(kind, address)
    return Input(name, str(snapshot.id))


def _base_dataset(base: Base) -> Input:
    """Returns the dataset of a base version, with the name of all versions."""
    namespace, name = _name_of(base.directory)
    return Input(DatasetName(namespace, posixpath.dirname(name)), base.manifest.version)


def _folder_of_pattern(path: str) -> str:
    wildcard = min((at for at in map(path.find, _WILDCARDS) if at >= 0), default=len(path))
    return path if wildcard == len(path) else path[: path.rfind("/", 0, wildcard) + 1] or "."


_STATES = {RUNNING: RunState.START, PUBLISHED: RunState.COMPLETE, Interrupted.state: RunState.ABORT}
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


def event_of(source: RunSource, record: RunRecord, manifest: Manifest | None = None) -> RunEvent:
    """Returns the event for the start or the end of a run.

    `record` is its record, of a run that is running or has ended. Raises UsageError if an
    environment variable is invalid.
    """
    by = f"pkg:pypi/recordmill@{quote(record.versions['recordmill'])}"
    namespace = source.environment.get("OPENLINEAGE_NAMESPACE") or _DEFAULT_NAMESPACE
    job_type = job_type_job.JobTypeJobFacet(
        "BATCH", _INTEGRATION, jobType=source.command.upper(), producer=by
    )
    time = record.started if record.state == RUNNING else record.finished
    return RunEvent(
        eventTime=time.isoformat(),
        eventType=_STATES.get(record.state, RunState.FAIL),
        run=Run(str(UUID(record.run_id)), _run_facets(source.environment, record, by)),
        job=Job(namespace, f"{source.command}.{source.config.name}", {"jobType": job_type}),
        inputs=list(_inputs(source, record, manifest, by)),
        outputs=[_output(source.config, record, manifest, by)],
        producer=by,
    )


def _run_facets(environment: Mapping[str, str], record: RunRecord, by: str) -> dict[str, RunFacet]:
    tags = {"runner": record.runner}
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            record.versions["apache-beam"],
            "Apache Beam",
            openlineageAdapterVersion=record.versions["recordmill"],
            producer=by,
        )
    }
    if record.state != RUNNING:
        tags["exit_code"] = str(record.exit_code)
    if record.state not in (RUNNING, PUBLISHED):
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            record.message, "PYTHON", producer=by
        )
    facets["tags"] = tags_run.TagsRunFacet(
        [tags_run.TagsRunFacetFields(name, tags[name], _INTEGRATION) for name in tags], producer=by
    )
    if parent := _parent(environment, by):
        facets["parent"] = parent
    return facets


def _parent(environment: Mapping[str, str], by: str) -> parent_run.ParentRunFacet | None:
    """Returns the run of the scheduler that started the command; None if it is not stated."""
    parent = _run_in(environment, "OPENLINEAGE_PARENT_ID")
    if parent is None:
        return None
    namespace, name, run = parent
    root_namespace, root_name, root = _run_in(environment, "OPENLINEAGE_ROOT_PARENT_ID") or parent
    return parent_run.ParentRunFacet(
        parent_run.Run(run),
        parent_run.Job(namespace, name),
        parent_run.Root(parent_run.RootRun(root), parent_run.RootJob(root_namespace, root_name)),
        producer=by,
    )


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
    source: RunSource, record: RunRecord, manifest: Manifest | None, by: str
) -> Iterator[InputDataset]:
    """Yields the tables, and the base version. Only rows of all tables together are counted."""
    tables = _tables_of(source.config, source.snapshots)
    for table in tables:
        # The rows of a run that appends include those of its base version.
        rows = None if source.config.append else record.rows
        is_counted = manifest is not None and len(tables) == 1
        yield _input(table, by, _statistics(by, rows, source.sizes) if is_counted else None)
    if source.base:
        kept = sum(manifest.base.kept.values()) if manifest and manifest.base else None
        statistics = None if kept is None else _statistics(by, kept)
        yield _input(_base_dataset(source.base), by, statistics)


def _input(dataset: Input, by: str, statistics: InputDatasetFacet | None) -> InputDataset:
    version = dataset_version_dataset.DatasetVersionDatasetFacet(dataset.version, producer=by)
    return InputDataset(
        *dataset.name,
        facets={"version": version} if dataset.version else {},
        inputFacets={"inputStatistics": statistics} if statistics else {},
    )


def _statistics(by: str, rows: int | None, sizes: Sequence[int | None] = ()) -> InputDatasetFacet:
    known = [size for size in sizes if size is not None]
    return input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=rows,
        size=sum(known) if sizes and len(known) == len(sizes) else None,
        fileCount=len(sizes) or None,
        producer=by,
    )


def _output(
    config: ConvertConfig, record: RunRecord, manifest: Manifest | None, by: str
) -> OutputDataset:
    """Returns the output, with its version and statistics if it is published."""
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
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    facets: dict[str, DatasetFacet] = {
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(config.version, producer=by),
        "schema": schema_dataset.SchemaDatasetFacet(fields, producer=by),
        "tags": tags_dataset.TagsDatasetFacet([checksum], producer=by),
    }
    statistics: dict[str, OutputDatasetFacet] = {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=record.records,
            size=sum(shard.bytes for shard in shards),
            fileCount=len(shards),
            producer=by,
        )
    }
    return OutputDataset(*name, facets=facets, outputFacets=statistics)


def _type_of(feature: Feature) -> str:
    """Returns the type of a feature with its shape, as in `float[?, 4]`."""
    if feature.shape is None:
        return feature.kind.value
    return f"{feature.kind.value}[{', '.join(str(size or '?') for size in feature.shape)}]"


def _description(classes: Sequence[str] | None) -> str | None:
    return f"class label, {len(classes):,} classes" if classes else None
