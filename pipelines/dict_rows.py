"""Beam transforms for pipelines of users: dicts from tables, and examples or a dataset from dicts.

A dict maps columns to values, as `ReadTables`, `ReadFromParquet`, `ReadFromBigQuery` and `Create`
produce it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.utils.shared import Shared

from recordmill.pipelines.base_version import open_base
from recordmill.pipelines.convert import make_analyzer, report_kept
from recordmill.pipelines.graph import Conversion, Reading, projection_of, write_dataset
from recordmill.pipelines.options import config_of
from recordmill.pipelines.run.lock import Lock, lock_target
from recordmill.pipelines.run.run_record import RunContext, read_record
from recordmill.pipelines.verification import verify
from recordmill.schemas.config import ConvertConfig, Verify
from recordmill.schemas.errors import RecordmillError, RejectBudgetExceeded, UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import masked_url
from recordmill.schemas.option import Affects, options_of
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.records import ImageRef, Location, SerializedExample, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Part, Projection
from recordmill.transforms.elements import REJECTS, rejected
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.rows.binding import Binding, bind_rows, reject_row
from recordmill.transforms.functional.rows.columns import (
    assumed_columns,
    image_columns,
    missing_column,
    resolve_sources,
)
from recordmill.transforms.functional.rows.feature_values import with_classes
from recordmill.transforms.functional.sources import dicts
from recordmill.transforms.inputs.first_rows import with_encoded_images
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables, probe_tables
from recordmill.transforms.read_rows import ListSources, ReadDicts
from recordmill.transforms.shards.build_examples import Fetched, Pools, build_all
from recordmill.transforms.storage.files import is_local
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.storage.stores.options import current_options

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from recordmill.schemas.convert_options import DatasetOptions, RowOptions, StrPath

# The name of the input in messages and in manifest.json.
_ROWS = "rows"

_BATCH_ROWS = 256

# The attribute of a PCollection with the columns of its dicts, if they are known.
_COLUMNS = "_recordmill_columns"

# The locks of the datasets that this process writes, by run id.
_locks: dict[str, Lock] = {}


class _HandlesErrors(beam.PTransform):
    """A transform whose rejects can be sent to an `ErrorHandler` of Beam."""

    _handler: Any = None

    def with_error_handler(self, handler: Any) -> Self:
        """Sends rejects to an `ErrorHandler` of Beam, so that the output has none.

        Args:
            handler: an `apache_beam.transforms.error_handling.ErrorHandler`, which gets dicts as in
                rejects/: `key`, `uri`, `source`, `reason`, `detail`; None for none.

        Returns:
            This transform.
        """
        self._handler = handler
        return self


class ReadTables(_HandlesErrors):
    """Reads tables as `convert` reads them: pipeline → PCollection of dicts of column to value.

    CSV, TSV, JSONL, Parquet and Arrow tables, lakehouse tables among them. Large ones are read by
    several workers. A dict also has the source location of its row, as `_source`: `BuildExamples`
    and `WriteDataset` name it in rejects, resolve paths relative to the folder of the table, and
    read its text as numbers where a schema has numbers. Keep the entry where you change rows.

    Rows that cannot be read fail the pipeline, unless there is an error handler.
    """

    def __init__(
        self,
        pattern: StrPath | Sequence[StrPath],
        *,
        columns: Iterable[str] | None = None,
        image: str | None = None,
        input_format: str = "auto",
        delimiter: str | None = None,
        header: Sequence[str] | str | None = None,
    ) -> None:
        """Checks the options; the tables are opened when the transform is applied.

        Args:
            pattern: a table, a folder of tables, or a pattern; or a list of them.
            columns: the columns to read; None for all.
            image: the column of images; None for the one that has bytes of images, or "image".
            input_format: as of `convert`.
            delimiter: as of `convert`.
            header: as of `convert`.

        Raises:
            UsageError: for an option that is not valid.
        """
        super().__init__()
        several = [pattern] if isinstance(pattern, str | os.PathLike) else pattern
        paths = [os.fspath(path) for path in several]
        given = {
            # Workers may have another working directory.
            "input": [os.path.abspath(path) if is_local(path) else path for path in paths],
            "output": ".",
            "name": _ROWS,
            "input_format": input_format,
            "delimiter": delimiter,
            "header": header,
            "columns": {"image": image} if image else None,
        }
        self._config = config_of({k: v for k, v in given.items() if v is not None})
        self._columns = None if columns is None else tuple(columns)
        self._image = image

    def display_data(self) -> dict[str, str]:
        """Returns the tables, as engines show them beside the step."""
        return {"input": " ".join(map(masked_url, self._config.inputs))}

    def expand(self, root: beam.Pipeline) -> PCollection[dict[str, Any]]:
        """Adds the reading; a part of a table is a unit of work.

        Raises:
            UsageError: if there is no table, it cannot be read, or it has no such column.
        """
        use_pipeline_options(root.pipeline.options)
        tables = with_encoded_images(self._config, probe_tables(self._config))
        projection = self._projection(tables)
        columns = projection.columns or tables.columns
        listed = root.pipeline | "ListTables" >> ListSources(tables.files)
        read = (
            listed.parts
            | "SpreadParts" >> beam.Reshuffle()
            | "ReadParts"
            >> beam.FlatMap(_dicts, projection)
            .with_output_types(dict[str, Any])
            .with_outputs(REJECTS, main="rows")
        )
        unread = (listed.rejects, read[REJECTS]) | "UnreadRows" >> beam.Flatten()
        _handle(unread | "ToDict" >> beam.Map(Reject.to_dict), self._handler, "ReadTables")
        # Rows with images are not sent to other workers: their parts are.
        rows: PCollection[dict[str, Any]] = read.rows
        rows = rows if projection.image else rows | "SpreadRows" >> beam.Reshuffle()
        setattr(rows, _COLUMNS, columns)  # so that the next transform checks them
        return rows

    def _projection(self, tables: InputTables) -> Projection:
        where = " ".join(map(masked_url, self._config.inputs))
        if others := [file for file in tables.files if not file.declared.is_table]:
            raise UsageError(
                f"{masked_url(others[0].path)}: expected a table, got the format "
                f"{others[0].format}. Convert it with recordmill convert."
            )
        if dicts.SOURCE in tables.columns:
            raise UsageError(f"{where}: the column {dicts.SOURCE!r} is reserved. Rename it.")
        for name in (*(self._columns or ()), *([self._image] if self._image else ())):
            if name not in tables.columns:
                raise UsageError(missing_column(name, tables.columns, where))
        images = sorted(tables.embedded.intersection(self._columns or tables.columns))
        image = self._image or (images[0] if len(images) == 1 else "image")
        if images and image not in images:
            raise UsageError(f"{where}: columns {', '.join(images)} have bytes. Set image.")
        columns = self._columns
        if columns is None and tables.unsupported.keys() - {*images, *tables.structs}:
            known = (name for name in tables.columns if name not in tables.structs)
            columns = tuple(name for name in known if name not in tables.unsupported)
        return Projection(columns, image=image if images else "", pixels=True)


def _dicts(part: Part, projection: Projection) -> Iterator[dict[str, Any] | TaggedOutput]:
    projection = replace(projection, max_image_bytes=current_options().max_image_bytes)
    for found in one_by_one(FORMATS[part.file.format].read(part, projection)):
        if isinstance(found, Reject):
            yield rejected(found)
        elif not isinstance(found, SkippedInput):
            yield dicts.dict_of_row(found, projection.image)


def _handle(rejects: PCollection[dict[str, Any]], handler: Any, where: str) -> None:
    """Sends rejects to a handler; without one, the first fails the pipeline."""
    if handler is None:
        # Named after the transform, because there may be several.
        _ = rejects | f"FailAtReject[{where}]" >> beam.Map(_fail)
    else:
        handler.add_error_pcollection(rejects)


class Examples(NamedTuple):
    """The outputs of `BuildExamples`.

    `outputs | transform` applies a transform to the examples, and fails the pipeline at the first
    reject, which would be lost otherwise.

    Attributes:
        examples: serialized `tf.train.Example` messages.
        rejects: one dict per rejected row, as in rejects/: `key`, `uri`, `source`, `reason`,
            `detail`.
    """

    examples: PCollection[bytes]
    rejects: PCollection[dict[str, Any]]

    def __or__(self, transform: beam.PTransform) -> Any:
        """Applies a transform to the examples of rows of which none is rejected."""
        _handle(self.rejects, None, transform.label)
        return self.examples | transform


def _fail(reject: Mapping[str, Any]) -> None:
    raise RejectBudgetExceeded(
        f"{reject['source']}: {reject['reason']}: {reject['detail'].rstrip('.')}. Fix it, "
        "or go on without such rows by with_error_handler, or by `rejects` of BuildExamples."
    )


class BuildExamples(_HandlesErrors):
    """Builds a serialized `tf.train.Example` from each row, for a plain `beam.io.WriteToTFRecord`.

    Takes a PCollection of dicts and returns `Examples`; with an error handler, the examples. Each
    example has the same bytes as the record that `convert` writes for the same row.

    The key of a row is the value of `key_column`, or the path of its image. The image is a path (of
    a file that every worker can read, or in an object store), bytes, or a dict with `bytes` and
    `path`. Bytes without a path need a `key_column`.

    Values are typed, and text is never read as a number: a label "7" is a class name.
    """

    def __init__(
        self,
        schema: str | Schema = "image_classification",
        *,
        classes: Sequence[str] | None = None,
        row_columns: Iterable[str] | None = None,
        **options: Unpack[RowOptions],
    ) -> None:
        """Checks the options.

        Args:
            schema: a preset, the path of a schema file, or a `Schema`. Schemas of sequences, and
                those that take every column, need all rows and are rejected.
            classes: the class names, in the order of their ids; None if labels are integers.
            row_columns: the columns of the rows, for schemas that accept alternative columns. By
                default, the columns in `columns`, or else the first alternative, or the key.
            **options: options of `convert` that apply to a single row.

        Raises:
            UsageError: for an option that is not valid.
        """
        super().__init__()
        self._config = _config(schema=schema, classes=classes, output=".", name=_ROWS, **options)
        self._row_columns = None if row_columns is None else tuple(row_columns)
        assumed = _resolved(self._config, self._row_columns)
        if assumed.sequence is not None or assumed.every_column:
            raise UsageError(
                f"schema {assumed.name!r}: needs all rows, but BuildExamples builds a record "
                "from each row by itself. Use WriteDataset."
            )

    def expand(self, rows: PCollection[Any]) -> Examples | PCollection[bytes]:
        """Adds steps that build examples in batches, on a pool of threads.

        Raises:
            UsageError: if the elements are known not to be dicts, or to lack a column.
        """
        _check_elements(rows)
        schema = _resolved(self._config, _columns_of(rows, self._row_columns))
        binding = _binding(self._config, with_classes(schema, self._config.class_names))
        built = (
            rows
            | "BatchRows" >> beam.BatchElements(min_batch_size=1, max_batch_size=_BATCH_ROWS)
            | "Build"
            >> beam.ParDo(_BuildBatch(self._config, binding))
            .with_outputs(REJECTS, main="examples")
            .with_output_types(bytes)
        )
        rejects = built[REJECTS] | "ToDict" >> beam.Map(Reject.to_dict)
        if self._handler is None:
            return Examples(built.examples, rejects)
        _handle(rejects, self._handler, self.label)
        return built.examples


def _check_elements(rows: PCollection[Any]) -> None:
    """Raises UsageError if elements are known not to be dicts: each would be rejected."""
    found = rows.element_type
    if found in (str, bytes, int, float):
        raise UsageError(f"expected dicts with a value for each column, got {found.__name__}")


class VerifyRecords(beam.PTransform):
    """Verifies TFRecord files by their paths, which `WriteToTFRecord` returns.

    Takes a PCollection of paths, and returns one of (path, number of records). The pipeline fails
    at a damaged file. Each file is verified by itself, as by `recordmill.verify`.
    """

    def __init__(self, level: Verify = "parse") -> None:
        """Sets how much is verified.

        Args:
            level: "parse" to parse every record, "decode" to decode every image as well.

        Raises:
            UsageError: for another level.
        """
        super().__init__()
        if level not in get_args(Verify):
            raise UsageError(f"level={level!r}: expected one of {', '.join(get_args(Verify))}")
        self._level = level

    def expand(self, paths: PCollection[str]) -> PCollection[tuple[str, int]]:
        """Adds a step that reads the files."""
        return (
            paths
            | "Reshuffle" >> beam.Reshuffle()  # a bundle of a writer may have many
            | "Verify" >> beam.Map(_verified, self._level).with_output_types(tuple[str, int])
        )


def _verified(path: str, level: Verify) -> tuple[str, int]:
    return path, verify(path, level).records


class _BuildBatch(beam.DoFn):
    """Builds the examples of a batch of rows, on threads that all instances share."""

    def __init__(self, config: ConvertConfig, binding: Binding) -> None:
        self._config = config
        self._binding = binding
        self._plan = Plan(binding.resolved, {}, 0)
        self._projection = projection_of(binding.resolved.schema, config)
        self._guard = ImageRootGuard(config.guard)
        self._shared = Shared()
        labels = self._projection.labels if config.class_names is None else ()
        # How the details begin of labels that are texts, where integers are expected.
        self._unnamed = tuple(f"column {name!r}: expected an int64, got '" for name in labels)

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)

    def process(self, batch: list[Any]) -> Iterator[bytes | TaggedOutput]:
        refs = list[ImageRef | Fetched]()
        for element in batch:
            found = dicts.row_of_dict(element, self._projection, self._config.key_column)
            if isinstance(found, Reject):
                yield rejected(found)
                continue
            held = list[bytes]()
            row = dicts.with_locations(found, self._projection.other_images, partial(_hold, held))
            try:
                (ref,) = bind_rows([row], self._binding)
            except RecordError as error:
                if error.detail.startswith(self._unnamed):
                    error.detail += ". Class names need classes=[…]"
                yield rejected(reject_row(row, self._binding, error))
                continue
            files = iter(held)
            image = next(files) if isinstance(found.image, bytes) else None
            others = tuple(next(files) if file[-1] else None for file in ref.others or ())
            refs.append(Fetched(ref, image, others) if held else ref)
        for built in build_all(refs, self._plan, self._config, self._pools, self._guard):
            if isinstance(built, SerializedExample):
                yield built.data
            elif isinstance(built, Reject):
                yield rejected(built)


def _hold(held: list[bytes], data: bytes) -> Location:
    """Returns a placeholder for the location of an embedded image, whose bytes are kept."""
    held.append(data)
    return Location("", 0, len(data), staged=b"at hand")


class WrittenDataset(NamedTuple):
    """The output of `WriteDataset`.

    Attributes:
        path: the folder of the published dataset, for `recordmill.open`.
        records: number of records.
        rejected: number of rows in rejects/.
    """

    path: str
    records: int
    rejected: int


class WriteDataset(beam.PTransform):
    """Writes, verifies and publishes a dataset from the rows of a user's pipeline.

    Takes a PCollection of dicts, as `BuildExamples` does, and returns a PCollection of one
    `WrittenDataset`. The shards are byte-identical to those that `convert` writes for a table with
    the same rows and options, in any order of the rows. If more rows are rejected than
    `max_rejects` allows, or if verification fails, the pipeline fails and nothing is published.

    The dataset's folder is prepared and locked when the transform is applied. It is unlocked when
    the dataset is published, the pipeline object is deleted, or the process ends.
    """

    def __init__(
        self,
        output: str,
        name: str,
        *,
        schema: str | Schema = "image_classification",
        row_columns: Iterable[str] | None = None,
        **options: Unpack[DatasetOptions],
    ) -> None:
        """Checks the options.

        Args:
            output: the dataset is written to OUTPUT/NAME/VERSION. A relative path is resolved now,
                from the working directory of this process.
            name: letters, digits and _, beginning with a letter.
            schema: a preset, the path of a schema file, or a `Schema`.
            row_columns: as for `BuildExamples`.
            **options: options of `convert`, except for those of its input.

        Raises:
            UsageError: for an option that is not valid.
        """
        super().__init__()
        # The pipeline may run later, in another working directory or another process.
        output = os.path.abspath(output) if is_local(output) else output
        self._config = _config(schema=schema, output=output, name=name, **options)
        self._row_columns = None if row_columns is None else tuple(row_columns)
        _resolved(self._config, self._row_columns)

    def expand(self, rows: PCollection[Any]) -> PCollection[WrittenDataset]:
        """Prepares the dataset's folder, and adds all stages of a conversion.

        Raises:
            DatasetExists: if the dataset is already published, or another run is writing it.
            UsageError: if the folder contains files that were not written by a run, or the rows
                are unbounded, or known not to be dicts.
        """
        _check_elements(rows)
        if not rows.is_bounded:
            raise UsageError("WriteDataset needs all rows, but the PCollection is unbounded")
        config, pipeline = self._config, rows.pipeline
        schema = _resolved(config, _columns_of(rows, self._row_columns))
        binding = _binding(config, ResolvedSchema(schema))
        context = RunContext.begin(type(pipeline.runner).__name__)
        locked = lock_target(config, context)
        if locked is None:  # --if_exists skip
            report_kept(config)
            return pipeline | "Skipped" >> beam.Create([_published(config.directory)])
        job = Conversion(
            config,
            InputTables((), has_rows=True, embedded=frozenset(image_columns(schema, config))),
            None,
            make_analyzer(config, schema, binding, open_base(config)),
            context,
            *locked,
        )
        # The lock cannot be pickled into the graph: its last step finds it by the run id.
        _locks[context.run_id] = job.lock
        weakref.finalize(pipeline, _unlock, context.run_id)
        projection = projection_of(schema, config)
        read = rows | "ReadDicts" >> ReadDicts(projection, config.key_column, job.target.work)
        state = write_dataset(Reading(read, read.good, {}), job)
        return state | "Result" >> beam.Map(_result, context, job.target.final, job.target.work)


def _config(**options: Any) -> ConvertConfig:
    """Returns the config of a conversion whose rows come from a pipeline."""
    for declared in options_of(ConvertConfig):
        if declared.name in options and declared.option.affects & Affects.SOURCE:
            raise UsageError(
                f"{declared.name}: the rows come from the pipeline. "
                "Read, join and select them there."
            )
    return config_of({"input": [_ROWS], **{k: v for k, v in options.items() if v is not None}})


def _columns_of(rows: PCollection[Any], stated: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Returns the stated columns of rows, or those of `ReadTables`; None if none are known."""
    return stated if stated is not None else getattr(rows, _COLUMNS, None) or None


def _resolved(config: ConvertConfig, columns: tuple[str, ...] | None) -> Schema:
    """Returns the schema with one source for each feature; raises UsageError if a column lacks."""
    schema = config.dataset_schema
    present = assumed_columns(schema, config) if columns is None else columns
    if config.key_column is None and not schema.has_image:
        raise UsageError(
            f"schema {schema.name!r}: has no image, whose path could be the key of a row. "
            "Set key_column."
        )
    return resolve_sources(schema, present, config, "a row")


def _binding(config: ConvertConfig, resolved: ResolvedSchema) -> Binding:
    """Returns the column mapping; without a table or an image root, paths are opened as given."""
    # The key of an image without a path is the name of its table and its line.
    return replace(Binding.of(config, resolved.schema), resolved=resolved, key_root=None)


def _result(_: str, context: RunContext, final: str, work: str) -> WrittenDataset:
    """Returns the published dataset."""
    _unlock(context.run_id)
    record = context.record_in(final, work)
    if record is None:
        raise RecordmillError(f"{final}: the run ended without a run.json. Run it again.")
    if record.exit_code:
        raise record.error(final)
    return WrittenDataset(final, record.records, record.rejected)


def _published(directory: str) -> WrittenDataset:
    record = read_record(directory)
    if record is None:
        raise UsageError(f"{directory}: run.json is missing or damaged. Set if_exists to replace.")
    return WrittenDataset(directory, record.records, record.rejected)


def _unlock(run_id: str) -> None:
    if lock := _locks.pop(run_id, None):
        lock.release()
