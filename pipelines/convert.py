"""The conversion: label tables and images in, a proven TFRecord dataset out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsIter, PCollection

from pipelines.input_tables import InputTables, look_at_tables
from pipelines.publish import publish
from pipelines.run_record import RunContext, RunRecord, finished
from pipelines.runners import make_runner, runner_name
from pipelines.target import Target, choose_target
from schemas import layout
from schemas.config import ConvertConfig
from schemas.errors import RunError, UsageError
from schemas.features import Schema
from schemas.plan import ResolvedSchema
from transforms.bind_rows import BindRows
from transforms.files import exists, open_binary, write_bytes
from transforms.functional.binding import Binding, common_folder
from transforms.functional.column_choice import check_types, needed_columns, settle_sources
from transforms.functional.placement import SplitRanges
from transforms.functional.survey import Surveyor
from transforms.place_records import PlaceRecords
from transforms.read_rows import ReadRows
from transforms.reconcile_books import ReconcileBooks
from transforms.survey_rows import SurveyRows
from transforms.verify_shards import VerifyShards
from transforms.write_rejects import WriteRejects
from transforms.write_shards import WriteShards


@dataclass(frozen=True)
class Conversion:
    """A conversion that is ready to be built into a graph.

    Attributes:
        config: what is asked for.
        tables: the input, looked at.
        surveyor: the schema and columns, settled by what the tables have.
        target: where to write.
        context: who runs this, and since when.
    """

    config: ConvertConfig
    tables: InputTables
    surveyor: Surveyor
    target: Target
    context: RunContext


def build(root: beam.Pipeline, job: Conversion) -> PCollection[str]:
    """Adds the whole conversion to a pipeline; returns the one state that run.json tells."""
    config, surveyor, work = job.config, job.surveyor, job.target.work
    tables = ReadRows(job.tables.files, needed_columns(surveyor.schema, config))

    # Read twice: a second look at the tables costs less than to hold all rows between two stages.
    surveyed = (root | "SurveyTables" >> tables).good | "SurveyRows" >> SurveyRows(
        surveyor, parted=bool(config.split_column or config.group_column)
    )
    read = root | "ReadTables" >> tables  # Row
    bound = read.good | "BindRows" >> BindRows(surveyor.binding, surveyed.plan)  # ImageRef
    placement = bound.good | "PlaceRecords" >> PlaceRecords(
        surveyed, surveyor.ranges, config.seed
    )  # ((split, shard), (order, ImageRef))
    written = placement.placed | "WriteShards" >> WriteShards(config, work, surveyed.plan)
    audits = written.good | "VerifyShards" >> VerifyShards(config, work, surveyed.plan)

    rejects = [
        read.rejects,
        bound.rejects,
        placement.rejects,
        written.rejects,
    ] | "AllRejects" >> beam.Flatten()
    reject_files = rejects | "WriteRejects" >> WriteRejects(work)
    info = audits | "Reconcile" >> ReconcileBooks(
        plan=surveyed.plan,
        rows=read.good,
        unread=read.rejects,
        placed=placement.rows,
        rejects=rejects,
        written=written.good,
    )
    return info | "Publish" >> beam.Map(
        publish, config, job.target, job.context, AsIter(reject_files)
    )


def prepare(config: ConvertConfig, options: PipelineOptions) -> Conversion | None:
    """Returns the conversion, ready to run; None if there is nothing to do.

    Raises:
        UsageError: if the input is no table, or lacks a column.
        DatasetExists: if the dataset is there.
    """
    tables = look_at_tables(config)
    where = tables.files[0].path
    schema = settle_sources(config.dataset_schema, tables.columns, config, where)
    check_types(tables.unsupported, needed_columns(schema, config))
    if not tables.has_rows:
        raise UsageError(f"--input {tables.files[0].path}: has a header, but no rows")
    target = choose_target(config)
    if target is None:
        return None
    binding = binding_of(config, schema, [file.path for file in tables.files])
    surveyor = Surveyor(config, schema, binding, SplitRanges.from_weights(config.weights))
    return Conversion(config, tables, surveyor, target, RunContext.begin(runner_name(options)))


def binding_of(config: ConvertConfig, schema: Schema, files: Sequence[str] = ()) -> Binding:
    """Returns which table columns mean what; class names are not known yet."""
    return Binding(
        resolved=ResolvedSchema(schema),
        columns=config.columns,
        image_root=config.image_root,
        key_column=config.key_column,
        split_column=config.split_column,
        group_column=config.group_column,
        splits=frozenset(config.splits) if config.splits is not None else None,
        key_root=common_folder(files),
    )


def run(job: Conversion, options: PipelineOptions) -> RunRecord:
    """Runs a conversion to its end, and returns how it ended.

    Whatever goes wrong while the engine runs ends in run.json and in the record, not in a raise:
    the caller reports both alike.
    """
    try:
        pipeline = beam.Pipeline(runner=make_runner(options), options=options)
        build(pipeline, job)
        pipeline.run().wait_until_finish()
        return _read_record(job)
    except RunError as error:
        return _failed(job, error)
    except Exception as error:  # noqa: BLE001 - an engine raises what it likes; it is told whole
        return _failed(job, RunError(f"the engine failed: {type(error).__name__}: {error}"))


def _read_record(job: Conversion) -> RunRecord:
    """Returns what the graph's last step wrote of this run.

    Raises:
        RunError: if it wrote nothing.
    """
    for directory in (job.target.final, job.target.work):
        path = layout.join(directory, layout.RUN)
        if exists(path):
            with open_binary(path) as stream:
                record = RunRecord.model_validate_json(stream.read())
            if record.run_id == job.context.run_id:
                return record
    raise RunError(f"{job.target.work}: the engine ended without a word; see its own log")


def _failed(job: Conversion, error: RunError) -> RunRecord:
    record = finished(job.context, None, error)
    try:
        write_bytes(layout.join(job.target.work, layout.RUN), record.to_json())
    except OSError as unwritable:
        message = f"{record.message}; and run.json cannot be written: {unwritable}"
        return record.model_copy(update={"message": message})
    return record
