"""Conversions for programs: `recordmill.convert`, `dry_run` and `forget`."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from apache_beam.options.pipeline_options import PipelineOptions
from pyarrow import BufferReader, large_string, string
from pyarrow.parquet import read_schema

from recordmill.pipelines import convert as conversion
from recordmill.pipelines import dry_run as trial
from recordmill.pipelines import forget as removal
from recordmill.pipelines import lineage
from recordmill.pipelines.dataset.dataset import Dataset, open_dataset
from recordmill.pipelines.engines.beam_patches import applied
from recordmill.pipelines.engines.runners import check_submission, waits_for_result
from recordmill.pipelines.graph import Conversion
from recordmill.pipelines.options import beam_options as parsed_beam_options
from recordmill.pipelines.options import config_of, with_files, with_implied_options
from recordmill.pipelines.run.progress import poll_workers
from recordmill.pipelines.run.progress import progress as shown_progress
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig, SchemaOverrides
from recordmill.schemas.errors import DatasetExists, RecordmillError, UsageError
from recordmill.schemas.option import DeclaredOption, options_of
from recordmill.schemas.plan import Forecast
from recordmill.schemas.records import MEMORY_ROWS
from recordmill.transforms.functional.sources.dicts import is_rows, parquet_of
from recordmill.transforms.storage.files import delete, is_local, write_bytes
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.workers.progress import COUNTERS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from recordmill.schemas.convert_options import ConvertOptions, StrPath

# Paths, or rows in memory: whatever Arrow reads, and lists of dicts.
Input: TypeAlias = "StrPath | Sequence[StrPath] | Sequence[Mapping[str, Any]] | Any"
BeamOptions: TypeAlias = "PipelineOptions | Sequence[str] | Mapping[str, Any]"

# Held by the running conversion: store options, progress counters and verifier are global.
_one_at_a_time = threading.Lock()

_DIGEST_CHARACTERS = 16


def convert(
    input: Input,
    *,
    beam_options: BeamOptions = (),
    progress: bool = False,
    **options: Unpack[ConvertOptions],
) -> Dataset:
    """Converts label tables and images to a verified TFRecord dataset.

    Conversions in one process run one after the other. The process's logging, signal handlers and
    standard output are not changed.

    Args:
        input: a table, a folder or a file pattern; or a list of them. Or rows: a list of dicts, a
            DataFrame of pandas or polars, a `pyarrow.Table`, or a dataset of Hugging Face. Images
            are paths, relative to `image_root`, or else to the working directory; bytes; images of
            Pillow; or uint8 arrays of pixels, (height, width) or (height, width, channels).
        beam_options: pipeline options of Beam: flags, a mapping, or `PipelineOptions`.
        progress: whether to show progress on standard error.
        **options: options of `recordmill convert`: `recordmill convert --help=all` lists them.

    Returns:
        The published dataset, as `recordmill.open` returns it.

    Raises:
        UsageError: for bad options, a bad schema, or a bad input table.
        VerificationFailed: if a shard differs from what was written, or row counts do not match.
        RejectBudgetExceeded: if more rows were rejected than `max_rejects` allows.
        DatasetExists: if the dataset is already published, or another run is writing it.
        RecordmillError: if the run failed for another reason.
    """
    beam = _beam(beam_options)
    if not waits_for_result(beam):
        raise UsageError(
            "--no_wait_until_finish: convert() waits for the job, because it returns the dataset. "
            "Remove the option, or submit the job with the command recordmill convert."
        )
    with _exclusively(), _opened(input, options, beam) as named:
        config, record = run(named, beam, show=progress)
    if record is None:
        conversion.report_kept(config)
    else:
        _log(record)
        if record.exit_code:
            raise record.error(record.directory)
    return open_dataset(config.directory)


def _log(record: RunRecord) -> None:
    """Logs what the command prints: findings, and the rejects of a published dataset."""
    log = logging.getLogger("recordmill")
    for finding in record.findings:
        level = logging.WARNING if finding.severity == "warning" else logging.INFO
        log.log(level, "%s", f"{finding.text} ({finding.hint})" if finding.hint else finding.text)
    if record.reject_lines and not record.exit_code:  # an error has them
        log.warning("%s", "\n".join(record.reject_lines))


def dry_run(
    input: Input, *, beam_options: BeamOptions = (), **options: Unpack[ConvertOptions]
) -> Forecast:
    """Returns a forecast of `convert` with the same arguments, without writing anything.

    Args:
        input: as for `convert`.
        beam_options: as for `convert`.
        **options: as for `convert`.

    Raises:
        UsageError: for bad options, a bad schema, or a bad input table.
        DatasetExists: if the dataset is already published.
        RecordmillError: if an input cannot be read to its end.
    """
    beam = _beam(beam_options)
    with _exclusively(), _opened(input, options, beam) as named:
        config, forecast = forecast_of(named, beam)
    if forecast is None:
        raise DatasetExists(
            f"{config.directory}: is already published, so a run would change nothing. "
            "Raise version, or set if_exists to replace."
        )
    return forecast


def forget(
    directory: StrPath,
    keys: str | Iterable[str],
    *,
    version: str | None = None,
    allow_missing: bool = False,
    purge: bool = False,
    beam_options: BeamOptions = (),
) -> removal.Forgotten:
    """Publishes a version of a dataset without some records.

    Args:
        directory: the newest version of the dataset, or the folder of all of its versions.
        keys: the keys of the records, as in `records/`; or a single one.
        version: the new version; by default, the next number.
        allow_missing: whether to ignore keys that no record has.
        purge: whether to delete all versions that still have the records.
        beam_options: as for `convert`.

    Returns:
        The new version, the similar records that remain in it, and the older versions that have
        the records.

    Raises:
        UsageError: if there is no such dataset or record, or if no record would be left.
        DatasetExists: if the version is already published, or another run is writing one.
        VerificationFailed: if a version cannot be read, or files that were purged have hard links
            elsewhere; the new version is published, and all other versions are purged.
        RecordmillError: if the run failed for another reason.
    """
    beam = _beam(beam_options)
    chosen = [keys] if isinstance(keys, str) else list(keys)
    if not waits_for_result(beam):
        raise UsageError("--no_wait_until_finish: forget() waits for the job. Remove the option.")
    if not chosen:
        raise UsageError("keys: is empty; expected the keys of records. Add some.")
    with _exclusively():
        use_pipeline_options(beam)
        done = removal.forget(
            os.fspath(directory), chosen, beam, version=version, allow_missing=allow_missing
        )
        problems = removal.purge(done).problems if purge else done.problems
    for warning in done.warnings:
        logging.getLogger("recordmill").warning("%s", warning)
    if problems:
        raise type(problems[0])("\n".join(map(str, problems)))
    return done


@contextmanager
def _exclusively() -> Iterator[None]:
    """Runs one conversion at a time; the traceback of a usage error is without those of threads."""
    with _one_at_a_time, applied():
        try:
            yield
        except UsageError as error:
            raise error from None  # the message says it all


@contextmanager
def _rows_in_file(rows: Any, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Provides the options of a conversion whose input is a file of the rows, beside the dataset.

    The conversion reads it like any other, on every engine. Paths of images are relative to the
    working directory, unless `image_root` is set.
    """
    data = parquet_of(rows)
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]
    # Checked before anything is written.
    early = {name: value for name, value in options.items() if name != "num_shards"}
    config = config_of(with_files({"input": [MEMORY_ROWS], **early}))
    if config.append and config.key_column is None and not _have_paths(data, config):
        raise UsageError(
            "append: rows in memory without a path have the number of their row as key, as other "
            "rows of --base have. Add key_column, the column of an id that stays the same."
        )
    versions = layout.join(config.output, config.name)
    folder = layout.join(versions, f".rows-{digest}")
    path = layout.join(folder, MEMORY_ROWS)
    local = [one for one in (versions, config.output) if is_local(one)]
    created = [one for one in local if not os.path.exists(one)]
    named = dict(options)
    if options.get("image_root") is None:
        named |= {"image_root": os.getcwd(), "allow_outside_root": True}
    try:
        write_bytes(path, data)
        yield {"input": [path], **named}
    except RecordmillError as error:
        error.args = (str(error).replace(path, "rows"), *error.args[1:])
        raise
    finally:
        delete(folder)
        for one in created:
            with suppress(OSError):  # it has a dataset, or files of a failed run
                os.rmdir(one)


def _with_signature(function: Callable[..., Any]) -> None:
    """Gives a function with `**options` the signature that `help()` and notebooks show."""
    own = inspect.signature(function)
    shown = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    shown += [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=_readable_default(option)
        )
        for option in options_of(ConvertConfig, SchemaOverrides)
        if option.name != "input"
    ]
    vars(function)["__signature__"] = own.replace(parameters=shown)


def _readable_default(option: DeclaredOption) -> Any:
    """Returns the default of an option as users write it, such as "128MiB" or "0"."""
    if option.field.is_required():
        return inspect.Parameter.empty
    default = option.field.default
    is_plain = type(default) in (bool, dict, int, float, str, NoneType)
    return default if is_plain else option.default


_with_signature(convert)
_with_signature(dry_run)


def run(
    options: Mapping[str, Any],
    beam: PipelineOptions,
    *,
    command: Sequence[str] = (),
    interrupt: Interrupt | None = None,
    show: bool = False,
    submission: Callable[[str], None] = lambda text: None,
) -> tuple[ConvertConfig, RunRecord | None]:
    """Runs a conversion, and returns its config and record; None if a published dataset is kept.

    Option values are text, as on the command line, or typed. `interrupt` records a signal, and
    `submission` receives the URL of the web page of a submitted job.
    """
    interrupt = interrupt or Interrupt()
    config, job = _prepared(options, beam, command)
    if job is None:
        return config, None
    with _watched(job, beam) if show else nullcontext():
        record = lineage.run("convert", job, beam, interrupt, submission)
        interrupt.code = record.exit_code
    if record.exit_code:
        record = record.model_copy(update={"directory": job.target.failed_folder})
    return config, record


def forecast_of(
    options: Mapping[str, Any],
    beam: PipelineOptions,
    command: Sequence[str] = (),
    show: bool = False,
) -> tuple[ConvertConfig, Forecast | None]:
    """Returns the config of a conversion, and its forecast; None if a published dataset is kept."""
    config, job = _prepared(options, beam, command, is_dry=True)
    if job is None:
        return config, None
    COUNTERS.reset()
    with shown_progress(lambda: COUNTERS) if show else nullcontext():
        return config, trial.dry_run(job, beam)


def _prepared(
    options: Mapping[str, Any], beam: PipelineOptions, command: Sequence[str], is_dry: bool = False
) -> tuple[ConvertConfig, Conversion | None]:
    use_pipeline_options(beam)  # before any table is read: it may be in an object store
    options = with_files(options)
    # The splits that --num_shards may name are known when the input has been read.
    early = config_of({name: value for name, value in options.items() if name != "num_shards"})
    check_submission(early, beam)
    tables, base = conversion.open_inputs(early)
    config, tables = with_implied_options(options, tables)
    return config, conversion.prepare(config, beam, tables, base, command, is_dry)


@contextmanager
def _watched(job: Conversion, beam: PipelineOptions) -> Iterator[None]:
    with poll_workers(job.target.progress, beam) as poll, shown_progress(poll):
        yield


def _have_paths(data: bytes, config: ConvertConfig) -> bool:
    schema, found = config.dataset_schema, read_schema(BufferReader(data))
    at = found.get_field_index(config.column(schema.image.column)) if schema.has_image else -1
    return at >= 0 and found.field(at).type in (string(), large_string())


@contextmanager
def _opened(
    input: Input, options: Mapping[str, Any], beam: PipelineOptions
) -> Iterator[Mapping[str, Any]]:
    if not is_rows(input):
        many: list[Any] = [input] if isinstance(input, (str, os.PathLike)) else list(input)
        yield {"input": [os.fspath(path) for path in many], **options}
        return
    use_pipeline_options(beam)  # the output, beside which the rows are written, may be in a store
    with _rows_in_file(input, options) as named:
        yield named


def _beam(options: BeamOptions) -> PipelineOptions:
    if isinstance(options, PipelineOptions):
        return deepcopy(options)
    if isinstance(options, Mapping):
        options = [f"--{name}" if v is True else f"--{name}={v}" for name, v in options.items()]
    return parsed_beam_options(options)
