"""A conversion from its start to its end: prepared, run, published or failed, and resumed."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import ValidationError

from recordmill.pipelines.base_version import check_base, newest_findings, open_base
from recordmill.pipelines.engines import runners
from recordmill.pipelines.graph import Conversion, build, projection_of
from recordmill.pipelines.options import schema_differences
from recordmill.pipelines.run import run_record
from recordmill.pipelines.run.lock import abandoning, lock_target
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas import layout
from recordmill.schemas.condition import Condition, condition_of
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import Interrupted, RecordmillError, UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, some
from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import masked, masked_url, masked_values
from recordmill.schemas.option import Affects, fields_that_affect
from recordmill.schemas.plan import SplitRanges
from recordmill.schemas.tables import SPLIT, DeclaredClasses
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.columns import (
    check_types,
    image_columns,
    missing_column,
    resolve_sources,
    typed_columns,
    uncompared_sizes,
)
from recordmill.transforms.inputs import input_tables
from recordmill.transforms.inputs.first_rows import first_rejects, first_rows_error
from recordmill.transforms.inputs.formats import code_of
from recordmill.transforms.inputs.recognize import is_metadata
from recordmill.transforms.shards.writer_processes import writer_processes_allowed
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import is_local, write_bytes
from recordmill.transforms.verification.verifier_process import verifier_process_started
from recordmill.transforms.workers.sandbox import allow_children, stop_children

_LOG = logging.getLogger("recordmill")


def open_inputs(config: ConvertConfig) -> tuple[input_tables.InputTables, Base | None]:
    """Opens the base version, and probes the input, except for the rows that stay from the base.

    Raises UsageError if the base version is not published, or the input is not a table.
    """
    base = open_base(config)
    since = {entry.table: entry.id for entry in (base.kept_snapshots if base else ())}
    return input_tables.probe_tables(config, since), base


def prepare(
    config: ConvertConfig,
    options: PipelineOptions,
    tables: input_tables.InputTables,
    base: Base | None,
    command: Sequence[str] = (),
    dry_run: bool = False,
) -> Conversion | None:
    """Resolves the schema of opened inputs, and locks the dataset; None if a published one is kept.

    Raises UsageError if the input is not a table, or lacks a column, and DatasetExists if the
    dataset is already published, or another run is writing it. A dry run writes nothing.
    """
    labels = input_tables.probe_labels(config)
    if not tables.has_rows and not config.append:
        raise UsageError(f"--input {', '.join(config.inputs)}: has no rows. Add some.")
    both = input_tables.with_labels(tables, labels)
    if base and not tables.columns and not tables.has_rows:
        schema = base.manifest.dataset_schema  # as of an empty JSONL file
    else:
        schema = _schema_of(tables, labels, config)
    if config.where is not None:
        _check_compared(Condition(config.where), tables, schema, config)
    analyzer = make_analyzer(config, schema, Binding.of(config, schema, tables.files), base)
    classes = _renamed_classes(both.classes, projection_of(schema, config).renamed, config)
    analyzer = analyzer.with_source(classes, tables.recognized, both.snapshots)
    stated = tables.splits if config.split_column == SPLIT else ()
    sizes = uncompared_sizes(schema, both.columns, config)
    newest = newest_findings(config, base)
    others = input_tables.unused_columns([one for one in (tables, labels) if one], schema, config)
    findings = (*both.findings, *sizes, *newest, *others)
    analyzer = replace(analyzer, findings=findings, stated_splits=stated)
    context = run_record.RunContext.begin(runners.runner_name(options), command)
    # The last step, so that usage errors leave the output folder unchanged.
    locked = lock_target(config, context, dry_run)
    if locked is None:
        return None
    target, lock = locked
    scratch = target.work if runners.runs_directly(options) and is_local(target.work) else ""
    return Conversion(config, tables, labels, analyzer, context, target, lock, scratch)


def report_kept(config: ConvertConfig, report: Callable[[str], object] = _LOG.warning) -> list[str]:
    """Reports and returns a warning if the dataset that `skip` keeps is not that of the config."""
    warning = _warning_of_kept(config)
    if warning:
        report(warning)
    return [warning] if warning else []


def _warning_of_kept(config: ConvertConfig) -> str:
    what = f"{config.directory}: was published"
    try:
        dataset = DatasetFolder.open(config.directory)
        if layout.REMOVAL in dataset.manifest.sidecars:
            return (
                f"{what} by recordmill forget: its rows are not those of this command. Choose a "
                f"later --version, and --base {config.directory}, without the removed records."
            )
        record = run_record.read_record(config.directory)
        written = dataset.manifest.config
        others = list(_other_options(config, written, record.folder if record else ""))
    except (VerificationFailed, ValidationError):
        return f"{what} with options that cannot be read, and compared with those of this command"
    what = f"{what} with other options ({', '.join(others)}), not those of this command"
    return f"{what}. Choose another --version, or --if_exists replace." if others else ""


def _other_options(config: ConvertConfig, written: dict[str, Any], folder: str) -> Iterator[str]:
    """Yields the options by which the content of a dataset differs from that of a config.

    `written` is the config in its manifest, whose paths are relative to `folder`.
    """
    masks = masked_values(config.model_dump(mode="json"))
    new, old = map(ConvertConfig.model_validate, (masks, {**written, "output": config.output}))
    outside = fields_that_affect(ConvertConfig, Affects.METADATA | Affects.CHECKS | Affects.RUN)
    for name, info in ConvertConfig.model_fields.items():
        one, other = getattr(new, name), getattr(old, name)
        if name in ("inputs", "labels", "image_root", "base"):
            one, other = _real_paths(one, ""), _real_paths(other, folder)
        if name == "dataset_schema":
            if parts := sorted(schema_differences(one, other)):
                yield f"--schema: {some(parts)}"
        elif name not in outside and one != other:
            yield f"--{info.validation_alias or name}"


def _real_paths(paths: str | tuple[str, ...] | None, folder: str) -> list[str]:
    """Returns paths without links, those on this machine relative to a folder."""
    many = (paths,) if isinstance(paths, str) else paths or ()
    return [os.path.realpath(os.path.join(folder, p)) if is_local(p) else p for p in many]


def _check_compared(
    where: Condition, tables: input_tables.InputTables, schema: Schema, config: ConvertConfig
) -> None:
    """Checks that the input has the columns of `--where`; raises UsageError if not."""
    for name, value in sorted(where.columns.items()) if tables.columns else ():
        if name in tables.columns:
            continue
        what = missing_column(name, tables.columns, masked_url(config.inputs[0]))
        for key, feature in schema.label_features.items():
            column = config.column(feature.source.name)
            names = (key, posixpath.basename(key), feature.source.name)
            if name in names and column in tables.columns:
                one = value[0] if isinstance(value, list) else value
                compared = condition_of(column, one if feature.shape is None else [one])
                what += f'. Its classes are in column {column!r}: --where "{compared}"'
                break
        raise UsageError(f"--where: {what}")
    # The analyze pass does not read them, so it would select other rows.
    for name in sorted(tables.embedded.intersection(where.columns, image_columns(schema, config))):
        raise UsageError(
            f"--where: column {name!r} has embedded images; expected texts or numbers. "
            "Compare another column."
        )


def _renamed_classes(
    declared: Mapping[str, DeclaredClasses], columns: Collection[str], config: ConvertConfig
) -> dict[str, DeclaredClasses]:
    """Returns declared classes with the names of `--rename`; raises UsageError for ids."""
    if config.rename and not columns:
        raise UsageError(
            "--rename: no feature has classes. Declare classes: true for one in the schema."
        )
    for name in (name for name in columns if name in declared and declared[name].by_id):
        raise UsageError(
            f"--rename: column {name!r} has class ids, whose names are in its metadata; expected "
            "names. Convert it, and rename the classes of the dataset: --input DIR/NAME/VERSION."
        )
    new = {name: declared[name].renamed(config.rename) for name in columns if name in declared}
    return {**declared, **new}


def _schema_of(
    tables: input_tables.InputTables, labels: input_tables.InputTables | None, config: ConvertConfig
) -> Schema:
    """Returns the schema with the columns of the input and its labels."""
    if labels is not None and config.join_columns is not None:
        input_tables.check_join_columns(tables, labels, config.join_columns)
    both = input_tables.with_labels(tables, labels)
    schema = _resolve(both, config, tables.narrowest)
    if labels is not None:
        _check_sequence_join(schema, tables.columns, config)
    columns = {config.column(feature.source.name) for feature in schema.label_features.values()}
    if columns and tables.has_rows and any(found := code_of(tables.files[0], columns)):
        raise UsageError(f"{masked_url(tables.files[0].path)}: has {found[0]}. Use {found[1]}")
    images = image_columns(schema, config)
    embedded = tables.embedded.intersection(images)
    if raw := next(filter(tables.raw.get, images), ""):
        raise UsageError(
            f"--input {tables.files[0].path}: {tables.raw[raw]}, which are raw uint8 "
            "pixels; expected an encoded image. Encode them as PNG, as with tf.io.encode_png."
        )
    check_types(both.unsupported, typed_columns(schema, config), embedded, both.fields)
    return schema


def _resolve(tables: input_tables.InputTables, config: ConvertConfig, where: str) -> Schema:
    try:
        return resolve_sources(config.dataset_schema, tables.columns, config, where)
    except UsageError as error:
        if is_metadata(where) and where not in config.inputs:
            hint = " To read the folders as classes instead, add --input_format folder."
            raise UsageError(f"{error}{hint}") from error
        if tables.has_rows and any(found := code_of(tables.files[0])):
            raise UsageError(f"{error} If it has {found[0]}, use {found[1]}") from error
        raise


def make_analyzer(
    config: ConvertConfig, schema: Schema, binding: Binding, base: Base | None
) -> Analyzer:
    """Returns the analyzer of the rows.

    Raises UsageError if the base version is damaged, or is incompatible with the options.
    """
    splits = SplitRanges.from_weights(config.weights)
    if base:
        check_base(base, config)
        binding = replace(binding, removed_keys=base.manifest.removed_keys)
    return Analyzer(config, schema, binding, splits, base)


def _check_sequence_join(schema: Schema, columns: Sequence[str], config: ConvertConfig) -> None:
    """Rejects a join that could drop single frames from a sequence."""
    if schema.sequence is None:
        return
    group = config.column(schema.sequence.group)
    if group in columns and (config.join_columns or ("",))[0] != group:
        raise UsageError(
            f"--join_on {config.join_on}: a frame without labels would be missing from its "
            f"sequence. Join on {group!r}, or join the tables beforehand."
        )


def run(
    job: Conversion,
    options: PipelineOptions,
    interrupt: Interrupt,
    submission: Callable[[str], None] = lambda text: None,
    stages: Callable[[beam.Pipeline, Conversion], object] | None = None,
) -> run_record.RunRecord:
    """Runs a conversion to its end, or submits it to a service.

    Failures are recorded in run.json and in the returned record instead of being raised, so that
    the caller reports them in the same way. Returns the run record. `submission`: called with the
    web page of a job that was submitted to a service. `stages`: adds other stages than those of a
    conversion to a pipeline. Raises KeyboardInterrupt if the host program raised it; run.json is
    written before.
    """
    allow_children()
    try:
        with _helpers(job, options):
            return _run(job, options, submission, stages or build)
    except RecordmillError as error:
        return _failed(job, _interrupted(job, interrupt) or runners.without_step(error))
    except Exception as error:  # noqa: BLE001 - engines raise exceptions of any type
        failure = RecordmillError(f"the engine failed: {runners.short_message(error)}")
        return _failed(job, _interrupted(job, interrupt) or failure)
    except KeyboardInterrupt:
        record = _failed(job, _interrupted(job, interrupt) or RecordmillError("interrupted"))
        # Without a signal to the command, the exception belongs to the host program.
        if interrupt.number is None:
            raise
        return record
    finally:
        job.lock.release()


@contextmanager
def _helpers(job: Conversion, options: PipelineOptions) -> Iterator[None]:
    """Allows the processes that help a run on this machine, and ends them after it."""
    # Stores are opened with the pipeline options, by the verifier as well.
    used = None if is_local(job.target.work) else options.get_all_options(drop_default=True)
    with (
        # On this machine, the verifier loads TensorFlow while the graph is built.
        verifier_process_started(used) if runners.is_in_process(options) else nullcontext(),
        writer_processes_allowed(job.scratch),
    ):
        yield


def _run(
    job: Conversion,
    options: PipelineOptions,
    submission: Callable[[str], None],
    stages: Callable[[beam.Pipeline, Conversion], object],
) -> run_record.RunRecord:
    _check_first_rows(job)
    pipeline = runners.make_pipeline(options)
    stages(pipeline, job)
    result = pipeline.run()
    if where := runners.job_page(result, options):
        submission(f"submitted: {where}")
    # The last step of the graph publishes on a worker, so this process may exit.
    if not runners.waits_for_result(options):
        return run_record.submitted_record(job.context, layout.join(job.target.final, layout.RUN))
    try:
        result.wait_until_finish()
    except KeyboardInterrupt:
        result.cancel()
        raise
    # The last step has written run.json to the final folder, or to the work folder if it failed.
    if record := job.context.record_in(job.target.final, job.target.work):
        return _cleaned_up(job, record) if record.state == run_record.PUBLISHED else record
    job.target.check_active(job.context)
    raise RecordmillError(f"{job.target.work}: the engine ended without a result. See its log.")


def _check_first_rows(job: Conversion) -> None:
    """Stops a run whose first rows are all rejected for their images, and lists these rejects."""
    schema, tables = job.analyzer.schema, job.tables
    # Joined rows, staged images and the members of archives are known only to the run.
    if job.labels or job.stages_images or not schema.has_image or not tables.are_tables:
        return
    projection = projection_of(schema, job.config)
    if rejects := first_rejects(tables.files, projection, job.analyzer.binding, job.config):
        path = layout.join(job.target.work, layout.lines_name(layout.REJECTS))
        write_bytes(path, "".join(f"{reject.to_json()}\n" for reject in rejects).encode())
        raise first_rows_error(rejects, job.target.failed_folder)


def _interrupted(job: Conversion, interrupt: Interrupt) -> Interrupted | None:
    """Stops the child processes of an interrupted run, and returns its error.

    Returns the error with the number of shards to resume from; None if no signal arrived.
    """
    if interrupt.number is None:
        return None
    stop_children()
    kept = len(job.target.checkpoints.shards())
    shards = f"{kept} finished shards are kept. " if kept else "no shard was finished. "
    return interrupt.error(f"; {shards}Run the command again{' to resume' if kept else ''}.")


def _failed(job: Conversion, error: RecordmillError) -> run_record.RunRecord:
    """Records the failure of a run, unless it has already published its dataset."""
    with abandoning(job.context.run_id):
        record = run_record.finished_record(job.context, None, error)
        try:
            # An engine can fail after the last step: the dataset is published then.
            if job.target.is_published and (published := job.context.record_in(job.target.final)):
                return _cleaned_up(job, published)
            if job.target.is_taken(job.context):
                return record
            write_bytes(layout.join(job.target.work, layout.RUN), record.to_json())
            job.target.keep_failed_output()
        except OSError as unwritable:
            message = f"{record.message}; and run.json cannot be written: {unwritable}"
            return record.model_copy(update={"message": masked(message)})
        return record


def _cleaned_up(job: Conversion, published: run_record.RunRecord) -> run_record.RunRecord:
    """Deletes what a published run has left; a failure to do so is a warning."""
    warning = job.target.clean_up_published(job.context)
    if not warning:
        return published
    hint = "the dataset is complete; delete this folder"
    finding = Finding(kind="run_folder", severity="warning", text=masked(warning), hint=hint)
    return published.with_findings([finding])
