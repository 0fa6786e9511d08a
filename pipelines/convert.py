"""The graph of a conversion: label tables and images in, a verified TFRecord dataset out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from recordmill.pipelines.first_rows import TABLES, first_rejects, first_rows_error
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
from recordmill.schemas.plan import Plan, ResolvedSchema, SplitRanges
from recordmill.schemas.records import Unmatched
from recordmill.schemas.tables import Projection
from recordmill.transforms.analyze_rows import AnalyzeRows
from recordmill.transforms.assign_shards import AssignShards, RejectDuplicateKeys
from recordmill.transforms.duplicates import (
    Deduplicated,
    DropDuplicates,
    FindDuplicateImages,
    FindGroupLeaks,
)
from recordmill.transforms.elements import AssignedRows, RowBatch
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.binding import Binding, common_folder, table_names
from recordmill.transforms.functional.rows.columns import (
    check_types,
    needed_columns,
    resolve_sources,
    typed_columns,
)
from recordmill.transforms.functional.rows.sampling import Sampler
from recordmill.transforms.image_findings import FindImageIssues
from recordmill.transforms.join_labels import JoinLabels
from recordmill.transforms.list_unused_images import ListUnusedImages
from recordmill.transforms.read_rows import (
    BindRows,
    ListSources,
    ReadOutcome,
    ReadRows,
    SourceSplits,
)
from recordmill.transforms.reconcile_counts import ReconcileCounts, WriteLines
from recordmill.transforms.sample_rows import FindSample, SampleRows
from recordmill.transforms.similar_rows import DropSimilar, FindClusters, KeepTogether
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
    return write_dataset(read_rows(root, job, staging=job.target.work), job)


class Reading(NamedTuple):
    """The rows of a conversion.

    Attributes:
        read: the rows, the rejects and the skipped inputs.
        analyzed: the same rows for the analyze pass, which may come from a separate read.
        unmatched: labels and images that lack each other, by the folder of their list.
        all_rows: the rows with those outside of the sample; None if there is no sample.
    """

    read: ReadOutcome
    analyzed: PCollection[RowBatch]
    unmatched: Mapping[str, PCollection[Unmatched]]
    all_rows: PCollection[RowBatch] | None = None


def write_dataset(reading: Reading, job: Conversion) -> PCollection[str]:
    """Adds all stages after reading; returns one element, the final state of the run.

    Args:
        reading: the rows.
        job: the conversion.
    """
    reading = _keep_together(reading, job)
    read, rows = reading.read, reading.analyzed
    config, work, analyzer, base = job.config, job.target.work, job.analyzer, job.analyzer.base
    plan = rows | "AnalyzeRows" >> AnalyzeRows(analyzer, reading.all_rows)
    bound = read.good | "BindRows" >> BindRows(analyzer.binding, plan)  # RefBatch
    keyed = bound.good | "RejectDuplicateKeys" >> RejectDuplicateKeys(
        config, sequences=analyzer.schema.sequence is not None
    )  # RefBatch
    assigned = keyed.good | "AssignShards" >> AssignShards(
        plan, analyzer.ranges, config.seed, base
    )  # ((split, shard), [(order, ImageRef)])
    distinct = _drop_duplicates(assigned.rows, plan, job)
    checkpoints = job.target.checkpoints
    written = distinct.rows | "WriteShards" >> WriteShards(config, checkpoints, plan, base)
    verified = written.good | "VerifyShards" >> VerifyShards(config, work)
    content = verified.shards | "FindDuplicateImages" >> FindDuplicateImages(work, plan)

    rejected = [read.rejects, bound.rejects, keyed.rejects, written.rejects]
    rejects = rejected | "AllRejects" >> beam.Flatten()
    lists = {layout.REJECTS: rejects, **reading.unmatched}
    lists |= {layout.DROPPED: distinct.duplicates} if config.drops_rows else {}
    files = list(_written(lists, work)) | "AllFiles" >> beam.Flatten()
    info = verified.shards | "Reconcile" >> ReconcileCounts(
        plan=plan,
        rows=read.good,
        unread=read.rejects,
        skipped=read.skipped,
        assigned=assigned.counts,
        duplicates=distinct.duplicates,
        group_leaks=distinct.rows
        | "CompareGroups" >> FindGroupLeaks(groups_may_span_splits(config)),
        findings=verified.shards | "FindImageIssues" >> FindImageIssues(work, plan),
        rejects=rejects,
        tallies=verified.tallies,
        contents=[content, distinct.stats] | "AllContents" >> beam.Flatten(),
        base=base,
    )
    # publish() gets all written files as side inputs, so that it runs after them.
    indexed = verified.shards if config.index else rows.pipeline | "NoIndex" >> beam.Create([])
    indexes = indexed | "IndexShards" >> IndexShards(work)
    return info | "Publish" >> beam.Map(
        publish, config, job.target, job.context, AsIter(files), AsDict(indexes), base
    )


def _drop_duplicates(
    rows: PCollection[AssignedRows], plan: PCollection[Plan], job: Conversion
) -> Deduplicated:
    """Adds the steps that keep one row of identical images, and of similar ones."""
    config, base = job.config, job.analyzer.base
    unique = rows | "DropDuplicates" >> DropDuplicates(config, plan, base, staged=job.stages_images)
    distinct = unique.rows | "DropSimilar" >> DropSimilar(config, plan, base)
    return Deduplicated(
        distinct.rows,
        (unique.duplicates, distinct.duplicates) | "AllDropped" >> beam.Flatten(),
        (unique.stats, distinct.stats) | "AllStats" >> beam.Flatten(),
    )


def _keep_together(reading: Reading, job: Conversion) -> Reading:
    """Adds the comparison of all images; returns the rows with their clusters, if asked for."""
    if job.config.near_duplicates != "keep_together":
        return reading
    read, analyzed, all_rows = reading.read, reading.analyzed, reading.all_rows
    # Only the rows of the first read have embedded images, in staging files.
    compared = read.good if job.stages_images else analyzed
    keep = KeepTogether(job.analyzer, compared | "FindClusters" >> FindClusters(job.analyzer))
    rows = read.good | "KeepTogether" >> keep
    return Reading(
        read=read._replace(good=rows),
        analyzed=rows if analyzed is read.good else analyzed | "KeepAnalyzedTogether" >> keep,
        unmatched=reading.unmatched,
        # They determine splits; those outside of the sample have no cluster.
        all_rows=None if all_rows is None else all_rows | "KeepAllTogether" >> keep,
    )


def _written(lists: Mapping[str, PCollection[Any]], directory: str) -> Iterator[PCollection[str]]:
    """Adds the writing of lists of JSON lines, by folder; yields the paths of their files."""
    for folder, lines in lists.items():
        step = "".join(word.title() for word in folder.split("_"))
        yield lines | f"Write{step}" >> WriteLines(directory, folder)


def read_rows(root: beam.Pipeline, job: Conversion, staging: str) -> Reading:
    """Adds the reading of the rows, for the conversion and for its analyze pass.

    Args:
        root: the pipeline.
        job: the conversion.
        staging: the folder for embedded images; "" to read no image bytes.
    """
    listed = root | "ListTables" >> ListSources(job.tables.files)
    if job.labels is not None:
        reading = _read_joined(listed, job.labels, job, staging)
    else:
        reading = _read_tables(listed, job, staging)
    return _with_unused_images(reading, job) if job.config.list_unused_images else reading


def _read_tables(listed: SourceSplits, job: Conversion, staging: str) -> Reading:
    """Reads the tables twice: that is cheaper than holding all rows between two stages."""
    projection = projection_of(job.analyzer.schema, job.config)
    analyzed = listed | "AnalyzeTables" >> ReadRows(projection, counted=False)
    sample = _sample(analyzed, job)
    read = listed | "ReadTables" >> ReadRows(projection, staging, sample=sample)
    if sample is None:
        return Reading(read, analyzed.good, {})
    return Reading(read, (analyzed | "Sample" >> SampleRows(sample)).good, {}, analyzed.good)


def _read_joined(
    listed: SourceSplits, labels: InputTables, job: Conversion, staging: str
) -> Reading:
    """Reads the tables and their labels; which rows are in a sample is known once they are joined.

    Args:
        listed: the tables.
        labels: the tables of labels.
        job: the conversion.
        staging: the folder for embedded images.
    """
    projection, on = projection_of(job.analyzer.schema, job.config), job.config.join_columns
    read = listed | "ReadTables" >> ReadRows(projection, staging)
    listed_labels = listed.splits.pipeline | "ListLabels" >> ListSources(labels.files)
    columns = Projection(projection.columns)
    read_labels = listed_labels | "ReadLabels" >> ReadRows(columns, counted=False)
    joined = read | "JoinLabels" >> JoinLabels(read_labels, on or ("", ""), projection.image)
    lists = {layout.UNMATCHED_LABELS: joined.labels, layout.UNMATCHED_IMAGES: joined.images}
    sample = _sample(joined.read, job)
    if sample is None:
        return Reading(joined.read, joined.read.good, lists)
    sampled = joined.read | "Sample" >> SampleRows(sample)
    return Reading(sampled, sampled.good, lists, joined.read.good)


def _sample(read: ReadOutcome, job: Conversion) -> PCollection[Sampler] | None:
    """Returns the sampler of the rows; None to convert all."""
    if job.config.sample is None:
        return None
    sampler = Sampler.of(job.config, job.analyzer.binding)
    rows = job.config.sample if isinstance(job.config.sample, int) else None
    return read | "FindSample" >> FindSample(sampler, rows)


def _with_unused_images(reading: Reading, job: Conversion) -> Reading:
    """Adds the images below the image root that no row names to those without a label."""
    root = job.config.image_root or ""
    rows = reading.all_rows or reading.analyzed
    unused = rows | "ListUnusedImages" >> ListUnusedImages(root, job.analyzer.binding)
    folder, skipped = layout.UNMATCHED_IMAGES, (reading.read.skipped, unused.skipped)
    others = [reading.unmatched[folder]] if folder in reading.unmatched else []
    images = (unused.images, *others) | "AllUnmatchedImages" >> beam.Flatten()
    return reading._replace(
        read=reading.read._replace(skipped=skipped | "WithUnusedImages" >> beam.Flatten()),
        unmatched={**reading.unmatched, folder: images},
    )


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
    tables: InputTables | None = None,
) -> Conversion | None:
    """Probes the input, resolves the schema, and locks the dataset.

    Args:
        config: the options.
        options: pipeline options of Beam.
        command: the command line, for run.json.
        dry_run: whether to leave the output folder unchanged.
        tables: the probed input, or None to probe it.

    Returns:
        The conversion; None if the dataset is already published and is kept.

    Raises:
        UsageError: if the input is not a table, or lacks a column.
        DatasetExists: if the dataset is already published, or another run is writing it.
    """
    tables, labels = tables or probe_tables(config), probe_labels(config)
    both = with_labels(tables, labels, config.join_columns)
    where = tables.files[0].path
    schema = resolve_sources(config.dataset_schema, both.columns, config, where)
    if labels is not None:
        check_sequence_join(schema, tables.columns, config)
    images = config.column(schema.image.column) if schema.has_image else ""
    embedded = images if images in tables.embedded else None
    check_types(both.unsupported, typed_columns(schema, config), embedded, both.fields)
    if not tables.has_rows:
        raise UsageError(f"--input {tables.files[0].path}: has a header, but no rows. Add some.")
    binding = make_binding(config, schema, [file.path for file in tables.files])
    analyzer = make_analyzer(config, schema, binding)
    analyzer = analyzer.with_source(both.classes, tables.recognized)
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
    if group in columns and (config.join_columns or ("",))[0] != group:
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
        image_suffix=config.image_suffix or "",
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
    stages: Callable[[beam.Pipeline, Conversion], object] | None = None,
) -> RunRecord:
    """Runs a conversion to its end, or submits it to a service.

    Failures are recorded in run.json and in the returned record instead of being raised, so that
    the caller reports them in the same way.

    Args:
        job: the conversion.
        options: pipeline options of Beam.
        interrupt: records whether the process received a signal.
        submission: called with the web page of a job that was submitted to a service.
        stages: adds other stages than those of a conversion to a pipeline.

    Returns:
        The run record.

    Raises:
        KeyboardInterrupt: if the host program raised it; run.json is written before.
    """
    allow_children()
    used = None if is_local(job.target.work) else options.get_all_options(drop_default=True)
    try:
        with verifier_process_started(used) if is_in_process(options) else nullcontext():
            return _run(job, options, submission, stages or build)
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


def _run(
    job: Conversion,
    options: PipelineOptions,
    submission: Callable[[str], None],
    stages: Callable[[beam.Pipeline, Conversion], object],
) -> RunRecord:
    check_first_rows(job)
    pipeline = make_pipeline(options)
    stages(pipeline, job)
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


def check_first_rows(job: Conversion) -> None:
    """Stops a run whose first rows are all rejected for their images, and lists these rejects.

    Raises:
        RejectBudgetExceeded: if they are.
    """
    schema, files = job.analyzer.schema, job.tables.files
    is_table = all(file.format in TABLES for file in files)
    if job.labels or job.stages_images or not schema.has_image or not is_table:
        return
    projection = projection_of(schema, job.config)
    if rejects := first_rejects(files, projection, job.analyzer.binding, job.config):
        path = layout.join(job.target.work, layout.lines_name(layout.REJECTS))
        write_bytes(path, "".join(f"{reject.to_json()}\n" for reject in rejects).encode())
        raise first_rows_error(rejects, job.target.failed_folder)


def _interrupted(job: Conversion, interrupt: Interrupt) -> Interrupted | None:
    """Stops the child processes of an interrupted run, and returns its error.

    Returns:
        The error with the number of shards to resume from; None if no signal arrived.
    """
    if interrupt.number is None:
        return None
    stop_children()
    kept = len(job.target.checkpoints.shards())
    shards = f"{kept} finished shards are kept. " if kept else "no shard was finished. "
    return interrupt.error(f"; {shards}Run the command again{' to resume' if kept else ''}.")


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
