"""`recordmill schema`: prints a schema or that of a dataset, or infers one from a table.

A schema is printed with its features, its required columns, and the parse spec of its records; that
of a dataset with its classes, and the code that reads it with each library.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import yaml

from recordmill.pipelines.console.terminal import Terminal, finish, say
from recordmill.pipelines.options import config_of, load_schema
from recordmill.pipelines.parser import INFER_OPTIONS
from recordmill.pipelines.sidecars import text_template
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Missing, Schema
from recordmill.schemas.findings import lost_rows_message
from recordmill.schemas.masking import masked_source
from recordmill.schemas.origins import NO_COLUMN, Kind, Origin, Source
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.settings import BoxSettings
from recordmill.schemas.tables import Projection
from recordmill.schemas.yaml_files import preset, preset_names
from recordmill.transforms.functional.images.codecs import SourceImage
from recordmill.transforms.functional.images.sniffing import image_of, is_encoded
from recordmill.transforms.functional.rows import infer_schema
from recordmill.transforms.functional.rows.binding import resolve_path
from recordmill.transforms.functional.rows.columns import (
    hint_at_header,
    missing_column,
    resolve_sources,
)
from recordmill.transforms.functional.sources.arrays import BYTES, PATH
from recordmill.transforms.functional.sources.box_rows import BoxColumns
from recordmill.transforms.functional.values.typed import number_form, single_value, size_of_values
from recordmill.transforms.inputs.first_rows import columns_of_detection
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import InputTables, probe_tables
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.workers.sandbox import examine_in_subprocess

_DTYPES = {Kind.INT64: "tf.int64", Kind.FLOAT: "tf.float32", Kind.BYTES: "tf.string"}


def _snippets(dataset: DatasetFolder) -> dict[str, str]:
    """Returns code that reads the first split, by library; libraries that cannot are left out."""
    schema, path, format_ = dataset.manifest.dataset_schema, dataset.directory, dataset.shard_format
    split = "train" if "train" in dataset.splits else next(iter(dataset.splits), "train")
    code: Any = text_template("snippets.jinja").module
    found = {"recordmill.load": code.load(schema, path, split, dataset.classes)}
    if format_.tensorflow is not None:
        shards = dataset.path(f"{dataset.manifest.name}-{split}.tfrecord-*")
        found["tf.data"] = code.tf_data(schema, _specs(schema), shards, format_.tensorflow)
    if format_.seekable:
        pair = schema.supervised
        label = schema.features[pair[1]] if pair else None
        is_single = label is not None and label.shape is None and not label.is_mask
        if pair and is_single and schema.sequence is None:
            found["PyTorch"] = code.torch_pairs(path, split, *pair)
        else:
            found["PyTorch"] = code.torch_records(path, split)
        found["Grain"] = code.grain(path, split)
        if format_.in_tfds and schema.message == "Example":
            found["TFDS"] = code.tfds(schema, path, split)
    return {library: code.strip() for library, code in found.items()}


def _parse_code(schema: Schema) -> str:
    macros: Any = text_template("snippets.jinja").module
    return str(macros.parse(_specs(schema)).strip())


def _specs(schema: Schema) -> dict[str, dict[str, str]]:
    """Returns the specs of the features of a record, and of the frames of a SequenceExample."""
    if schema.message == "Example":
        features = schema.features_of_record.items()
        return {"record": {name: _spec(feature) for name, feature in features}, "frames": {}}
    return {
        "record": {name: _spec(feature) for name, feature in schema.context_features.items()},
        "frames": {name: _spec_of_frames(f) for name, f in schema.frame_features.items()},
    }


def _spec(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.VarLenFeature({dtype})"
    shape = list(feature.shape or ())
    if feature.has_open_rows:
        return f"tf.io.FixedLenSequenceFeature({shape[1:]}, {dtype}, allow_missing=True)"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"


def _spec_of_frames(feature: Feature) -> str:
    dtype = _DTYPES[feature.kind]
    if feature.optional:
        return f"tf.io.RaggedFeature({dtype})"
    return f"tf.io.FixedLenSequenceFeature({list(feature.shape or ())}, {dtype})"


_SHOWN_CLASSES = 24


def run(flags: argparse.Namespace) -> int:
    """Prints a schema or that of a dataset, or infers one; returns the exit code."""
    if flags.infer is not None:
        given = vars(flags)
        text = _infer_schema(flags.infer, {n: given[n] for n in INFER_OPTIONS if n in given})
        return finish(flags.json, {"yaml": text}, partial(say, text, end=""))
    dataset = _dataset(flags.schema)
    schema = dataset.manifest.dataset_schema if dataset else load_schema(flags.schema)
    show = partial(_show_dataset, dataset) if dataset else partial(_show_schema, schema)
    return finish(flags.json, _as_json(schema, dataset), partial(show, Terminal()))


def _dataset(name: str) -> DatasetFolder | None:
    """Returns the dataset in a folder; None for a preset or a schema file."""
    is_file = layout.is_url(name) and name.endswith((".yaml", ".yml"))
    is_folder = os.path.isdir(name) or (layout.is_url(name) and not is_file)
    return DatasetFolder.named(name) if is_folder and name not in preset_names() else None


def _as_json(schema: Schema, dataset: DatasetFolder | None = None) -> dict[str, Any]:
    """Returns a schema as a JSON document.

    `dataset` is a dataset with this schema, to add its splits, classes and code.
    """
    document: dict[str, Any] = {
        "schema": schema.name,
        "description": schema.description,
        "columns": _columns_of(schema),
        "features": {
            name: feature.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            for name, feature in schema.features.items()
        },
        "yaml": _yaml(schema),
    }
    if dataset:
        document |= {
            "directory": dataset.directory,
            "name": dataset.manifest.name,
            "version": dataset.manifest.version,
            "splits": {name: split.records for name, split in dataset.splits.items()},
            "classes": dataset.classes,
            "snippets": _snippets(dataset),
        }
    return document


def _yaml(schema: Schema) -> str:
    document = schema.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name, feature in schema.features.items():
        sources = [str(source) for source in feature.sources]
        document["features"][name]["from"] = sources if len(sources) > 1 else sources[0]
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None)


def _show_dataset(dataset: DatasetFolder, terminal: Terminal) -> None:
    schema = dataset.manifest.dataset_schema
    found = dataset.manifest.ordered_splits
    splits = ", ".join(f"{name} {split.records:,}" for name, split in found.items())
    terminal.heading(dataset.directory, f" {splits} records; schema {schema.name}")
    terminal.line()
    _show_features(terminal, schema)
    for feature, names in dataset.classes.items():
        shown = [f"{number} {name}" for number, name in enumerate(names[:_SHOWN_CLASSES])]
        more = len(names) - len(shown)
        tail = f", and {more:,} more in {layout.labels_name(feature)}" if more else ""
        terminal.lines(("", f"Classes of {feature}: {', '.join(shown)}{tail}"))
    for name, code in _snippets(dataset).items():
        terminal.lines(("", f"# {name}", "", *code.split("\n")))


def _show_schema(schema: Schema, terminal: Terminal) -> None:
    terminal.heading(schema.name, f" {schema.description}")
    terminal.line()
    if schema.every_column:
        terminal.line("Every column of the table is a feature, by its type.")
        return
    _show_features(terminal, schema)
    terminal.lines(("", f"Columns: {', '.join(_columns_of(schema)) or 'none'}", ""))
    terminal.lines(_parse_code(schema).split("\n"))


def _show_features(terminal: Terminal, schema: Schema) -> None:
    rows = [(name, *_describe(feature)) for name, feature in schema.features.items()]
    terminal.table(("feature", "kind", "shape", "from", "missing"), rows, whole=True)


def _describe(feature: Feature) -> tuple[str, str, str, str]:
    """Returns kind, shape, sources and treatment of missing values, as text."""
    shape = "one value" if feature.shape is None else str(list(feature.shape))
    shape = shape.replace("None", "any") + (" a box" if feature.of_boxes else "")
    shape += " a frame" if feature.per == "frame" else ""
    missing = "row is rejected" if feature.missing is Missing.REQUIRED else "empty list"
    if feature.default is not None:
        missing = f"default {feature.default!r}"
    kind = f"{feature.kind.value}, class id" if feature.classes else feature.kind.value
    return kind, shape, " or ".join(str(s) for s in feature.sources), missing


def _columns_of(schema: Schema) -> list[str]:
    """Returns the columns that a table must have, with alternatives joined by "or"."""
    images = schema.image_settings.values() if schema.has_image else ()
    columns = list(dict.fromkeys(image.column for image in images))
    if schema.sequence is not None:
        columns += [schema.sequence.group, schema.sequence.order]
    if schema.has_boxes:
        columns += _box_columns(schema.boxes)
    for feature in schema.features.values():
        named = [_named(s, schema) for s in feature.sources if s.origin not in NO_COLUMN]
        optional = any(s.origin is Origin.KEY for s in feature.sources)
        optional |= feature.missing is Missing.EMPTY or feature.default is not None
        text = " or ".join(named) + (" (optional)" if optional else "")
        if named and text not in columns:
            columns.append(text)
    return columns


def _named(source: Source, schema: Schema) -> str:
    drawn = source.origin is Origin.SEGMENTATION
    return f"{source.name} with {schema.masks.labels}" if drawn else source.name


def _box_columns(boxes: BoxSettings) -> list[str]:
    ways = [", ".join(boxes.columns or ()), boxes.column]
    units = [] if boxes.units_column is None else [f"{boxes.units_column} (optional)"]
    return [" or ".join(way for way in ways if way), *units]


_SAMPLED_ROWS = 10_000
_SAMPLED_BYTES = 64 * 2**20
_SAMPLED_IMAGES = 20


def _infer_schema(table: str, options: Mapping[str, str]) -> str:
    """Returns a schema file for a table, with comments that explain it.

    `options`: the values of `INFER_OPTIONS` that are given.
    """
    # Placeholders: only what probes the table is used.
    unused = {"output": ".", "name": "unnamed", "schema": "tabular"}
    config = config_of({**options, "input": [table], **unused})
    tables = probe_tables(config)
    for name in config.columns.values():
        if name not in tables.columns:
            raise UsageError(f"--columns: {missing_column(name, tables.columns, table)}")
    rows = list(islice(_up_to_bytes(_rows(tables), _SAMPLED_BYTES), _SAMPLED_ROWS))
    if not rows:
        raise UsageError(f"--infer {table}: has no rows. Add some.")
    names = [
        name
        for name in tables.columns
        if name in tables.reads.get(name, [name])
        and (name not in tables.unsupported or name in tables.embedded)
    ]
    guess = infer_schema.infer_from_rows(names, rows, config.columns)
    if not guess.columns:
        listed = ", ".join(f"{name} holds {what}" for name, what in guess.left_out.items())
        why = f"no column can become a feature: {listed}" if listed else "has no columns"
        raise UsageError(f"--infer {table}: {why}")
    if boxes := columns_of_detection(tables, config.columns):
        return _schema_of_boxes(table, boxes, guess, rows, options)
    images = (
        infer_schema.SampledImages() if guess.image is None else _images(guess.image, rows, config)
    )
    others = () if rows[0].image is not None else guess.images  # the folder has one per row
    sampled = {column: _images(column, rows, config) for column in others}
    further = {c: f for c, f in sampled.items() if f.formats}  # others only have such names
    heading = _heading(table, guess, config, tables, options)
    text = {"kind": Kind.BYTES}
    texts = {n: guess.features[n].model_copy(update=text) for n in _doubtful_numbers(guess, config)}
    guess = replace(guess, features={**guess.features, **texts})
    of_records = all(file.format == "tfrecord" for file in tables.files)
    return infer_schema.schema_yaml(
        guess, infer_schema.schema_name(table), heading, images, further, of_records
    )


def _schema_of_boxes(
    table: str,
    boxes: BoxColumns,
    guess: infer_schema.InferredSchema,
    rows: Sequence[Row],
    options: Mapping[str, str],
) -> str:
    """Returns object detection with the other columns of a table that has a row per box."""
    found, features = preset("object_detection"), dict[str, Feature]()
    used, images = {*boxes.names.values()}, [row.values.get(boxes.names["image"]) for row in rows]
    for name, feature in guess.features.items():
        if name not in used and feature.shape is None:
            pairs = {(image, row.values.get(name)) for image, row in zip(images, rows, strict=True)}
            is_of_image = len(pairs) == len(set(images)) < len(images)
            of_boxes = {} if is_of_image else {"shape": (), "per_box": True}
            features[name] = feature.model_copy(update=of_boxes)
    placeholders = {"columns": "labels=COLUMN"} if "labels" not in boxes.names else {}
    if len(boxes.orders) > 1:
        placeholders["boxes"] = f"order={'|'.join(boxes.orders)}"
    what = "has a row per box; this preset has its boxes and their classes without a schema file"
    heading = [
        f"# {table} {what}:",
        f"#   {_command(found.name, table, {**options, **placeholders})}",
        f"# Its other columns are added here, guessed from the first {guess.rows:,} rows: check "
        "them before you use them, with --schema FILE.",
    ]
    update = {"name": infer_schema.schema_name(table), "features": {**found.features, **features}}
    return "\n".join((*heading, _yaml(found.model_copy(update=update))))


def _rows(tables: InputTables) -> Iterator[Row]:
    """Yields the rows of a table; raises UsageError if rows are lost, or all are rejected."""
    projection = Projection(tables.columns)
    rejected, is_empty = "", True
    for file in tables.files:
        for found in FORMATS[file.format].rows(file, projection):
            if isinstance(found, Row):
                is_empty = False
                yield _with_images(found, tables.embedded)
            elif isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
                lost = lost_rows_message([(masked_source(found.source), found.detail)])
                raise UsageError(f"--infer: {lost}")
            elif isinstance(found, Reject) and not rejected:
                rejected = f"{masked_source(found.source)}: {found.detail}"
    if rejected and is_empty:
        hint = hint_at_header(tables.columns)
        raise UsageError(f"--infer: none of the rows can be read{hint}; the first is {rejected}")


def _with_images(row: Row, columns: Iterable[str]) -> Row:
    """Returns a row with the bytes or the path of images that are {bytes, path} structs."""
    structs = {c: v for c in columns if isinstance(v := row.values.get(c), dict)}
    images = {c: v.get(BYTES) or v.get(PATH) for c, v in structs.items()}
    return row._replace(values={**row.values, **images}) if images else row


def _up_to_bytes(rows: Iterator[Row], size: int) -> Iterator[Row]:
    """Yields rows until their values, such as embedded images and long texts, exceed a size."""
    for row in rows:
        yield row
        size -= size_of_values(row.values.values())
        if size < 0:
            return


def _images(column: str, rows: Sequence[Row], config: ConvertConfig) -> infer_schema.SampledImages:
    found = list[SourceImage]()
    sample = [row for row in rows if row.values.get(column)][:_SAMPLED_IMAGES]
    for row in sample:
        with suppress(RecordError):  # counted in the sample, but without a format
            found.append(examine_in_subprocess(_image(row, column, config.image_root)))
    are_deep = bool(found) and all(one.bit_depth == 16 and one.channels == 1 for one in found)
    formats, sizes = Counter(one.format for one in found), [one.size for one in found]
    return infer_schema.SampledImages(len(sample), formats, sizes, are_deep)


def _image(row: Row, column: str, image_root: str | None) -> bytes:
    value = single_value(row.values[column])
    if isinstance(value, bytes):
        return value
    if isinstance(row.image, Location):
        return read_bytes(row.image.uri, row.image.start, row.image.stop)
    if is_encoded(str(value)):
        return image_of(str(value))
    return read_bytes(resolve_path(str(value), row.file, image_root))


def _heading(
    table: str,
    guess: infer_schema.InferredSchema,
    config: ConvertConfig,
    tables: InputTables,
    options: Mapping[str, str],
) -> list[str]:
    hint = hint_at_header(tables.columns) if len(tables.columns) == 1 else ""
    what = f"the first {guess.rows:,} rows of {table}{hint}"
    lines = [f"Guessed from {what}: check it before you use it."]
    lines += [f"{one}, raw uint8 pixels: encode them as PNG." for one in tables.raw.values()]
    known = [] if tables.raw else [tables.preset, *(schema.name for schema in tables.schemas)]
    if fitting := [name for name in preset_names() if name in known]:
        lines += ["", "The records have the features of this preset, and need no schema file:"]
        lines += [f"  {_command(name, table, options)}" for name in fitting]
    elif fitting := [name for name in preset_names() if _fits(preset(name), guess, config)]:
        mappings = {name: _mapping(preset(name), guess) for name in fitting}
        lines += ["", "The table fits these presets without a schema file:"]
        for name, columns in mappings.items():
            given = {**options, "columns": ",".join(map("=".join, columns.items()))}
            if preset(name).has_boxes and preset(name).boxes.column in guess.columns:
                given["boxes"] = "order=xywh|xyxy"
            lines += [f"  {_command(name, table, given)}"]
    used = tables.embedded | tables.structs  # as images, and by their fields
    others = {name: type_ for name, type_ in tables.unsupported.items() if name not in used}
    lines += [f"Left out: {name}, of type {type_}." for name, type_ in others.items()]
    lines += [f"Left out: {name}: it holds {what}." for name, what in guess.left_out.items()]
    if numbers := _doubtful_numbers(guess, config):
        what = "may have decimal commas or points between thousands, and are text here"
        lines += [f"{', '.join(numbers)}: {what}: see docs/how-to/from-excel.md."]
    return [*lines, ""]


def _doubtful_numbers(guess: infer_schema.InferredSchema, config: ConvertConfig) -> list[str]:
    columns = guess.values.items() if config.delimiter == ";" else ()
    forms = {name: {number_form(str(value)) for value in values} for name, values in columns}
    return [n for n, f in forms.items() if f & {"grouped", "comma"} and not f & {"decimal", "text"}]


def _fits(schema: Schema, guess: infer_schema.InferredSchema, config: ConvertConfig) -> bool:
    """Returns whether a table has all columns that a preset needs, possibly renamed."""
    if schema.every_column:
        return guess.image is None
    mapped = config.model_copy(update={"columns": _mapping(schema, guess)})
    try:
        resolve_sources(schema, guess.columns, mapped)
    except UsageError:
        return False
    return True


def _mapping(schema: Schema, guess: infer_schema.InferredSchema) -> dict[str, str]:
    """Returns the table's column by a preset's column, where the names differ."""
    sources = [s for f in schema.features.values() for s in f.sources]
    known = {s.name for s in sources if s.origin in (Origin.COLUMN, Origin.CLASS_NAME)}
    known |= {schema.image.column} if schema.has_image else set()
    roles = guess.roles.items()
    return {role: column for role, column in roles if role in known and role != column}


def _command(name: str, table: str, options: Mapping[str, str]) -> str:
    given = "".join(f" --{flag} {shlex.quote(text)}" for flag, text in options.items() if text)
    where = f"--input {shlex.quote(table)} --output DIR --name {infer_schema.schema_name(table)}"
    return f"recordmill convert --schema {name} {where}{given}"
