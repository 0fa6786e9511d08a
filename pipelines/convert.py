"""The graph of a conversion: label tables and images in, a verified TFRecord dataset out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsIter, PCollection

from recordmill.pipelines.base_version import open_base
from recordmill.pipelines.engines.runners import (
    is_in_process,
    job_page,
    make_pipeline,
    runner_name,
    short_message,
    waits_for_result,
    without_step,
)
from recordmill.pipelines.input_tables import (
    InputTables,
    probe_labels,
    probe_tables,
    with_labels,
)
from recordmill.pipelines.publish import publish
from recordmill.pipelines.run.lock import Lock, abandoning, lock_target
from recordmill.pipelines.run.run_record import (
    RunContext,
    RunRecord,
    finished_record,
    submitted_record,
)
from recordmill.pipelines.run.startup import Interrupt
from recordmill.pipelines.run.target import Target
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import Interrupted, RecordmillError, UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import Row
from recordmill.schemas.tables import Projection
from recordmill.transforms.analyze_rows import AnalyzeRows
from recordmill.transforms.assign_shards import AssignShards, RejectDuplicateKeys
from recordmill.transforms.duplicates import DropDuplicates, FindDuplicateImages, FindGroupLeaks
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.binding import Binding, common_folder, table_names
from recordmill.transforms.functional.rows.columns import (
    check_types,
    needed_columns,
    resolve_sources,
    typed_columns,
)
from recordmill.transforms.functional.rows.placement import SplitRanges
from recordmill.transforms.join_labels import JoinLabels
from recordmill.transforms.read_rows import BindRows, ListSources, ReadOutcome, ReadRows
from recordmill.transforms.reconcile_counts import ReconcileCounts, WriteLines
from recordmill.transforms.storage.files import is_local, write_bytes
from recordmill.transforms.verification.verifier_process import verifier_process_started
from recordmill.transforms.verify_shards import IndexShards, VerifyShards
from recordmill.transforms.workers.sandbox import allow_children, stop_children
from recordmill.transforms.write_shards import WriteShards

_ARCHIVES = ("tar", "tfrecord")


@dataclass(frozen=True)
class Conversion:
    """A conversion with everything that its graph is built from.

    Attributes:
        config: the options.
        tables: the probed input.
        labels: the probed tables that are joined to the input, or None.
        analyzer: computes the plan from the rows; holds the resolved schema and the columns.
        context: identity and start time of the run.
        target: the folders of the run.
        lock: the lock of the dataset.
    """

    config: ConvertConfig
    tables: InputTables
    labels: InputTables | None
    analyzer: Analyzer
    context: RunContext
    target: Target
    lock: Lock

    @property
    def stages_images(self) -> bool:
        """Whether a run first copies images to staging files, because they are embedded."""
        column = self.config.column(self.analyzer.schema.image.column)
        # Members of a gzipped archive have no byte range that a worker could read later.
        zipped = (file.gzipped and file.format in _ARCHIVES for file in self.tables.files)
        return self.analyzer.schema.has_image and (column in self.tables.embedded or any(zipped))


def build(root: beam.Pipeline, job: Conversion) -> PCollection[str]:
    """Adds all stages of a conversion to a pipeline.

    Args:
        root: the pipeline.
        job: the conversion.

    Returns:
        One element: the final state of the run, as in run.json.
    """
    read, rows = read_rows(root, job, staging=job.target.work)
    return write_dataset(read, rows, job)


def write_dataset(read: ReadOutcome, rows: PCollection[Row], job: Conversion) -> PCollection[str]:
    """Adds all stages after reading; returns one element, the final state of the run.

    Args:
        read: the rows, the rejects and the skipped inputs.
        rows: the same rows for the analyze pass, which may come from a separate read.
        job: the conversion.
    """
    config, analyzer, work = job.config, job.analyzer, job.target.work
    base = analyzer.base
    plan = rows | "AnalyzeRows" >> AnalyzeRows(analyzer)
    bound = read.good | "BindRows" >> BindRows(analyzer.binding, plan)  # ImageRef
    keyed = bound.good | "RejectDuplicateKeys" >> RejectDuplicateKeys(
        config, sequences=analyzer.schema.sequence is not None
    )  # ImageRef
    assigned = keyed.good | "AssignShards" >> AssignShards(
        plan, analyzer.ranges, config.seed, base
    )  # ((split, shard), (order, ImageRef))
    unique = assigned.rows | "DropDuplicates" >> DropDuplicates(
        config, work, plan, base, staged=job.stages_images
    )
    unique_rows, checkpoints = unique.rows, job.target.checkpoints
    group_leaks = unique_rows | "CompareGroups" >> FindGroupLeaks(groups_may_span_splits(config))
    written = unique_rows | "WriteShards" >> WriteShards(config, checkpoints, plan, base)
    verified = written.good | "VerifyShards" >> VerifyShards(config, work, plan)
    content = written.good | "FindDuplicateImages" >> FindDuplicateImages(work, plan)

    rejected = [read.rejects, bound.rejects, keyed.rejects, written.rejects]
    rejects = rejected | "AllRejects" >> beam.Flatten()
    rejects_files = rejects | "WriteRejects" >> WriteLines(work, layout.REJECTS)
    files = [rejects_files, unique.files] | "AllFiles" >> beam.Flatten()
    info = verified.shards | "Reconcile" >> ReconcileCounts(
        plan=plan,
        rows=read.good,
        unread=read.rejects,
        skipped=read.skipped,
        assigned=assigned.counts,
        duplicates=unique.duplicates,
        group_leaks=group_leaks,
        rejects=rejects,
        tallies=verified.tallies,
        contents=[content, unique.stats] | "AllContents" >> beam.Flatten(),
    )
    # publish() gets all written files as side inputs, so that it runs after them.
    indexed = verified.shards if config.index else rows.pipeline | "NoIndex" >> beam.Create([])
    indexes = indexed | "IndexShards" >> IndexShards(work)
    return info | "Publish" >> beam.Map(
        publish, config, job.target, job.context, AsIter(files), AsDict(indexes), base
    )


def read_rows(
    root: beam.Pipeline, job: Conversion, staging: str
) -> tuple[ReadOutcome, PCollection[Row]]:
    """Adds the reading of the rows, for the conversion and for its analyze pass.

    Args:
        root: the pipeline.
        job: the conversion.
        staging: the folder for embedded images; "" to read no image bytes.

    Returns:
        The rows, rejects and skipped inputs; and the rows of the analyze pass.
    """
    projection, on = projection_of(job.analyzer.schema, job.config), job.config.join_on
    listed = root | "ListTables" >> ListSources(job.tables.files)
    read = listed | "ReadTables" >> ReadRows(projection, staging)
    if job.labels and on:
        listed = root | "ListLabels" >> ListSources(job.labels.files)
        labels = listed | "ReadLabels" >> ReadRows(Projection(projection.columns), counted=False)
        joined = read | "JoinLabels" >> JoinLabels(labels, on, projection.image)
        return joined, joined.good
    # The tables are read twice: that is cheaper than holding all rows between two stages.
    return read, (listed | "AnalyzeTables" >> ReadRows(projection, counted=False)).good


def groups_may_span_splits(config: ConvertConfig) -> bool:
    """Returns whether rows of one group can be in different splits.

    A row's own split, and the split of its key in the base version, override that of its group.
    """
    return config.group_column is not None and bool(config.split_column or config.base)


def prepare(
    config: ConvertConfig,
    options: PipelineOptions,
    command: Sequence[str] = (),
    dry_run: bool = False,
) -> Conversion | None:
    """Probes the input, resolves the schema, and locks the dataset.

    Args:
        config: the options.
        options: pipeline options of Beam.
        command: the command line, for run.json.
        dry_run: whether to leave the output folder unchanged.

    Returns:
        The conversion; None if the dataset is already published and is kept.

    Raises:
        UsageError: if the input is not a table, or lacks a column.
        DatasetExists: if the dataset is already published, or another run is writing it.
    """
    tables, labels = probe_tables(config), probe_labels(config)
    both = with_labels(tables, labels, config.join_on)
    where = tables.files[0].path
    schema = resolve_sources(config.dataset_schema, both.columns, config, where)
    if labels is not None:
        check_sequence_join(schema, tables.columns, config)
    images = config.column(schema.image.column) if schema.has_image else ""
    embedded = images if images in tables.embedded else None
    check_types(both.unsupported, typed_columns(schema, config), embedded)
    if not tables.has_rows:
        raise UsageError(f"--input {tables.files[0].path}: has a header, but no rows. Add some.")
    binding = make_binding(config, schema, [file.path for file in tables.files])
    analyzer = make_analyzer(config, schema, binding)
    context = RunContext.begin(runner_name(options), command)
    locked = lock_target(config, context, dry_run)
    return Conversion(config, tables, labels, analyzer, context, *locked) if locked else None


def make_analyzer(config: ConvertConfig, schema: Schema, binding: Binding) -> Analyzer:
    """Returns the analyzer of the rows, which opens the base version.

    Args:
        config: the options.
        schema: the resolved schema.
        binding: the column mapping.

    Raises:
        UsageError: if the base version is damaged, or is incompatible with the options.
    """
    splits = SplitRanges.from_weights(config.weights)
    return Analyzer(config, schema, binding, splits, open_base(config))


def check_sequence_join(schema: Schema, columns: Sequence[str], config: ConvertConfig) -> None:
    """Rejects a join that could drop single frames from a sequence.

    Args:
        schema: the resolved schema.
        columns: the columns of the input, without those of the joined tables.
        config: the options.

    Raises:
        UsageError: if the input has the sequence column, and is joined on another column.
    """
    if schema.sequence is None:
        return
    group = config.column(schema.sequence.group)
    if group in columns and config.join_on != group:
        raise UsageError(
            f"--join_on {config.join_on}: a frame without labels would be missing from its "
            f"sequence. Join on {group!r}, or join the tables beforehand."
        )


def projection_of(schema: Schema, config: ConvertConfig) -> Projection:
    """Returns the projection of the columns that a conversion needs.

    Args:
        schema: the resolved schema.
        config: the options.
    """
    return Projection(
        columns=needed_columns(schema, config),
        image=config.column(schema.image.column) if schema.has_image else "",
        image_root=config.image_root,
    )


def make_binding(config: ConvertConfig, schema: Schema, files: Sequence[str] = ()) -> Binding:
    """Returns the column mapping, without class names, which the analyze pass finds.

    Args:
        config: the options.
        schema: the resolved schema.
        files: the input files, whose common folder is left out of keys.
    """
    return Binding(
        resolved=ResolvedSchema(schema),
        columns=config.columns,
        image_root=config.image_root,
        guard=config.guard,
        key_column=config.key_column,
        split_column=config.split_column,
        group_column=config.group_column,
        splits=frozenset(config.splits) if config.splits is not None else None,
        key_root=common_folder(files),
        table_names=table_names(files),
    )


def run(
    job: Conversion,
    options: PipelineOptions,
    interrupt: Interrupt,
    submission: Callable[[str], None] = lambda text: None,
) -> RunRecord:
    """Runs a conversion to its end, or submits it to a service.

    Failures are recorded in run.json and in the returned record instead of being raised, so that
    the caller reports them in the same way.

    Args:
        job: the conversion.
        options: pipeline options of Beam.
        interrupt: records whether the process received a signal.
        submission: called with the web page of a job that was submitted to a service.

    Returns:
        The run record.

    Raises:
        KeyboardInterrupt: if the host program raised it; run.json is written before.
    """
    allow_children()
    here = is_in_process(options) and is_local(job.target.work)
    try:
        with verifier_process_started() if here else nullcontext():
            return _run(job, options, submission)
    except RecordmillError as error:
        return _failed(job, _interrupted(job, interrupt) or without_step(error))
    except Exception as error:  # noqa: BLE001 - engines raise exceptions of any type
        failure = RecordmillError(f"the engine failed: {short_message(error)}")
        return _failed(job, _interrupted(job, interrupt) or failure)
    except KeyboardInterrupt:
        record = _failed(job, _interrupted(job, interrupt) or RecordmillError("interrupted"))
        if interrupt.number is None:
            raise
        return record
    finally:
        job.lock.release()


def _run(job: Conversion, options: PipelineOptions, submission: Callable[[str], None]) -> RunRecord:
    pipeline = make_pipeline(options)
    build(pipeline, job)
    result = pipeline.run()
    if where := job_page(result, options):
        submission(f"submitted: {where}")
    if not waits_for_result(options):
        return submitted_record(job.context, layout.join(job.target.final, layout.RUN))
    try:
        result.wait_until_finish()
    except KeyboardInterrupt:
        result.cancel()
        raise
    if record := job.context.record_in(job.target.final, job.target.work):
        return record
    raise RecordmillError(f"{job.target.work}: the engine ended without a result. See its log.")


def _interrupted(job: Conversion, interrupt: Interrupt) -> Interrupted | None:
    """Stops the child processes of an interrupted run, and returns its error.

    Returns:
        The error with the number of shards to resume from; None if no signal arrived.
    """
    if interrupt.number is None:
        return None
    stop_children()
    kept = len(job.target.checkpoints.shards())
    return interrupt.error(f"; {kept} finished shards are kept. Run the command again to resume.")


def _failed(job: Conversion, error: RecordmillError) -> RunRecord:
    """Records the failure of a run, unless it has already published its dataset."""
    with abandoning(job.context.run_id):
        return _record_of_failure(job, error)


def _record_of_failure(job: Conversion, error: RecordmillError) -> RunRecord:
    if job.target.is_published and (published := job.context.record_in(job.target.final)):
        job.target.clean_up()
        return published
    record = finished_record(job.context, None, error)
    try:
        write_bytes(layout.join(job.target.work, layout.RUN), record.to_json())
        job.target.keep_failed_output()
    except OSError as unwritable:
        message = f"{record.message}; and run.json cannot be written: {unwritable}"
        return record.model_copy(update={"message": message})
    return record
