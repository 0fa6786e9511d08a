"""Builds the config and Beam's pipeline options from flags or keywords."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import BaseModel, ValidationError

from recordmill.pipelines.engines.runners import resolve_options
from recordmill.pipelines.parser import Parser, add_convert_options
from recordmill.pipelines.record_files import incomplete_sets
from recordmill.schemas.config import DEFAULT_SCHEMA, ConvertConfig, SchemaOverrides
from recordmill.schemas.errors import UsageError, did_you_mean, problem_of_value
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.layout import split_rank
from recordmill.schemas.masking import bare_url
from recordmill.schemas.option import Properties, options_of, parse_properties
from recordmill.schemas.settings import BoxSettings, ImageSettings, MaskSettings, is_integer
from recordmill.schemas.tables import FILE_NAME, SPLIT, SPLIT_NAMES
from recordmill.schemas.yaml_files import MAX_LENGTH, parse_schema, preset, preset_names
from recordmill.transforms.functional.rows.columns import columns_of
from recordmill.transforms.functional.rows.feature_values import is_class_name, names_in
from recordmill.transforms.inputs import first_rows
from recordmill.transforms.inputs.input_tables import InputTables
from recordmill.transforms.inputs.record_folders import metadata_in
from recordmill.transforms.storage.files import exists, open_binary
from recordmill.transforms.storage.local_files import NotRegularError
from recordmill.transforms.storage.stores.beam import WebOptions

_DETECTION = "object_detection"
# Names of columns with splits, also in tables of CelebA and fastai.
_SPLIT_COLUMNS = {SPLIT, "splits", "subset", "partition", "is_train", "is_valid", "is_test"}


def config_of(options: Mapping[str, Any]) -> ConvertConfig:
    """Returns the config for option values, text or typed; raises UsageError for an invalid one."""
    values = with_files(options)
    changes = {name: values.pop(name) for name in SchemaOverrides.model_fields if name in values}
    schema = values.get("schema") or preset(DEFAULT_SCHEMA)
    values["schema"] = _overridden(schema, _checked(SchemaOverrides, changes))
    if "records_per_shard" in values and "shard_size" in values:
        raise UsageError(
            "--records_per_shard: cannot be combined with --shard_size. Remove one of them."
        )
    return _checked(ConvertConfig, values)


def with_files(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns option values with the content of the files that some of them name.

    Raises UsageError for an unknown option, or a file that cannot be read.
    """
    values = dict(options)
    known = [declared.name for declared in options_of(ConvertConfig, SchemaOverrides)]
    if unknown := sorted(values.keys() - {*known, *ConvertConfig.model_fields}):
        raise UsageError(f"unknown option {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    if isinstance(schema := values.get("schema"), (str, os.PathLike)):
        values["schema"] = load_schema(os.fspath(schema))
    if isinstance(classes := values.get("classes"), (str, os.PathLike)):
        values["classes"], first = _class_names(os.fspath(classes))
        ids = dict.fromkeys(("label_offset", "first_label"), first)  # those of the file
        values |= {name: one for name, one in ids.items() if one and values.get(name) is None}
    if isinstance(properties := values.get("croissant"), (str, os.PathLike)):
        values["croissant"] = _croissant_properties(os.fspath(properties))
    return values


def with_implied_options(
    options: Mapping[str, Any], tables: InputTables
) -> tuple[ConvertConfig, InputTables]:
    """Returns the config with the options that the input implies, and the input that states them.

    A source that states splits brings its own, and one with boxes or captions its preset. Image
    paths without a suffix have that of their files, and those of ImageFolder are in `file_name`,
    unless options say otherwise.
    """
    implied, notes = dict[str, Any](), list[str]()
    kinds = [file.declared.annotations for file in tables.files]
    if tables.schemas and options.get("schema") is None:
        implied["schema"] = _schema_of_datasets(tables.schemas)
        name = implied["schema"].name
        notes.append(f"schema: {name}, that of the dataset; --schema sets another")
    elif tables.preset and options.get("schema") is None:
        implied["schema"] = tables.preset
        notes.append(f"schema: {tables.preset}, because of the input; --schema sets another")
    elif not any(map(options.get, ("schema", "labels", "columns"))) and kinds and all(kinds):
        raise UsageError(
            f"--input {tables.narrowest}: expected annotations with {kinds[0]}, of one kind in "
            "all files. Add some, leave out the file, or add labels of a table with "
            "--labels TABLE --join_on image=COLUMN."
        )
    if tables.splits and options.get("split_column") is None:
        implied |= _implied_splits(options, tables, notes)
    config = _with_boxes(options, implied, tables, notes)
    config = _with_names(config, tables.columns, notes)
    tables = first_rows.with_boxes_of_images(config, tables)
    config = _with_file_name(config, tables)
    tables = first_rows.with_encoded_images(config, tables)
    if suffix := first_rows.missing_suffix(config, tables):
        config = config.model_copy(update={"image_suffix": suffix})
        notes.append(f"image paths: {suffix} is added, as in files; --image_suffix sets another")
    if first_rows.has_other_form(config, tables):
        notes.append("image paths: files with names in another Unicode form (NFC, NFD) are read")
    _check_blocks(options, config.dataset_schema)
    splits = (*_unused_splits(options, tables), *_lost_groups(options, tables))
    boxes = first_rows.unread_boxes(config, tables) if options.get("schema") is None else ()
    findings = (*tables.findings, *splits, *_missing_shards(tables), *boxes)
    return config, replace(tables, recognized=(*tables.recognized, *notes), findings=findings)


def _check_blocks(options: Mapping[str, Any], schema: Schema) -> None:
    """Raises UsageError for settings of boxes or masks that no feature uses."""
    boxes, masks = schema.has_boxes or schema.has_points, schema.mask_feature or schema.has_outlines
    for block, used in (("boxes", boxes), ("masks", masks)):
        if options.get(block) and not used:
            what = f"schema {schema.name!r} has no {block}"
            raise UsageError(f"--{block}: {what}. Remove the option, or set another schema.")


def _implied_splits(
    options: Mapping[str, Any], tables: InputTables, notes: list[str]
) -> dict[str, str]:
    """Returns the option for the splits of the source, unless others are set; adds a note."""
    listed = ", ".join(sorted(tables.splits, key=split_rank))
    flag = next((one for one in ("splits", "folds") if options.get(one) is not None), "")
    if flag:
        notes.append(f"splits: those of --{flag}; the input has {listed}")
        return {}
    if tables.unsplit:
        raise UsageError(
            f"--input {tables.unsplit}: expected a split, because other inputs state {listed}. "
            "Convert it separately, or set --split_column none to ignore all of these."
        )
    notes.append(f"splits: {listed}, as in the input; --splits sets others")
    return {"split_column": SPLIT}


def _with_boxes(
    options: Mapping[str, Any], implied: dict[str, Any], tables: InputTables, notes: list[str]
) -> ConvertConfig:
    """Returns the config; for tables with a row per box, that of object detection."""
    stated = config_of({**options, **implied})
    boxes = None
    is_image_label = options.get("schema") is None and "label" in stated.columns
    if not (tables.preset or tables.schemas or is_image_label):
        boxes = first_rows.columns_of_detection(tables, stated.columns)
    if boxes and options.get("schema") is None:
        first_rows.check_labels(tables, boxes)
        implied["schema"] = _DETECTION
        notes.append(f"schema: {_DETECTION}, because of a row per box; --schema sets another")
    config = config_of({**options, **implied})
    if not (boxes and config.dataset_schema.has_boxes):
        return config
    first_rows.check_order(config.dataset_schema, tables, boxes)
    if options.get("boxes") is None and {"ImageID", "XMin"} <= {*boxes.names.values()}:
        implied["boxes"] = {"units": "normalized"}
        notes.append("boxes: fractions, as in Open Images; --boxes units=pixel sets others")
    config = config_of({**options, **implied})
    known = columns_of(config.dataset_schema) - config.columns.keys()
    mapped = {k: v for k, v in boxes.names.items() if k != v and k in known}
    if listed := ", ".join(map("=".join, mapped.items())):
        notes.append(f"columns: {listed}; --columns sets others")
    if "is_crowd" in known and "IsGroupOf" in tables.columns:  # of Open Images
        notes.append("boxes of groups: not marked; --columns is_crowd=IsGroupOf marks them")
    schema, order = config.dataset_schema, boxes.orders[0]
    if not schema.boxes.states_order and order != schema.boxes.order:
        schema = _with_settings(schema, "boxes", {"order": order})
        notes.append(f"boxes: {order}, as their columns are named; --boxes order=… sets others")
    update = {"columns": {**mapped, **config.columns}, "dataset_schema": schema}
    return config.model_copy(update=update)


def _unused_splits(options: Mapping[str, Any], tables: InputTables) -> Iterator[Finding]:
    """Yields a warning if names of inputs, or a column, may be splits that nothing reads."""
    if tables.splits or options.get("split_column") is not None:
        return
    names = [file.path.rpartition("/")[2] for file in tables.files]
    words = [{*re.findall("[a-z]+", name.lower())} & SPLIT_NAMES for name in names]
    if len({*chain(*(named for named in words if len(named) == 1))}) > 1:
        text = f"the names of the inputs do not decide the splits ({some(names)})"
        hint = "to have splits, name the folder above folders train, test, … as --input; otherwise "
        yield finding("warning", "unused_splits", text, f"{hint}add --split_column none")
    columns = [name for name in tables.columns if name.casefold() in _SPLIT_COLUMNS]
    if columns and tables.are_tables:
        text = f"the column {columns[0]!r} does not decide the splits"
        hint = f"--split_column {shlex.quote(columns[0])} takes them from it, and "
        hint += "--split_column none does not"
        if options.get("folds") is not None:
            rows = f"--where \"{columns[0]} == 'train'\" --split_column none"
            hint = f"{rows} makes folds of these rows alone"
        yield finding("warning", "unused_splits", text, hint)


def _lost_groups(options: Mapping[str, Any], tables: InputTables) -> Iterator[Finding]:
    """Yields a warning if datasets that were split by groups are split again without them."""
    is_split = any(options.get(name) is not None for name in ("splits", "folds"))
    found = (metadata.group_column for file in tables.files if (metadata := metadata_in(file)))
    groups = next(filter(None, found), "")
    if groups and is_split and options.get("group_column") is None:
        text = f"groups of {groups!r}, by which the input was split, may be in several splits"
        hint = "--group_column keeps them together, if the records have a feature with it"
        yield finding("warning", "lost_groups", text, hint)


def _missing_shards(tables: InputTables) -> Iterator[Finding]:
    for problem in incomplete_sets(bare_url(file.path) for file in tables.files):
        yield finding("warning", "missing_shards", str(problem))


def _schema_of_datasets(schemas: Sequence[Schema]) -> Schema:
    """Returns the schema of all datasets in the input; raises UsageError if they have several."""
    if len(schemas) > 1:
        names = ", ".join(dict.fromkeys(schema.name for schema in schemas))
        parts = sorted(
            {part for one in schemas[1:] for part in schema_differences(schemas[0], one)}
        )
        raise UsageError(
            f"--input: the datasets have different schemas ({names}), which differ in "
            f"{some(parts)}. Set --schema to the one that their records shall have."
        )
    return schemas[0]


def schema_differences(one: Schema, other: Schema) -> Iterator[str]:
    """Yields the features, and other blocks, that differ between two schemas."""
    for name in {**one.features, **other.features}:
        if one.features.get(name) != other.features.get(name):
            yield name
    for block in ("every_column", "image", "images", "boxes", "masks", "sequence"):
        if getattr(one, block) != getattr(other, block):
            yield block


def _with_names(config: ConvertConfig, columns: Sequence[str], notes: list[str]) -> ConvertConfig:
    """Returns the config with the blanks at the ends of columns, which flags are without."""
    named = {role: name for role, name in config.columns.items() if name not in columns}
    found = {role: [c for c in columns if c.strip() == name] for role, name in named.items()}
    exact = {role: alike[0] for role, alike in found.items() if len(alike) == 1}
    notes += [f"columns: {role} is {column!r}, with its blanks" for role, column in exact.items()]
    return config.model_copy(update={"columns": {**config.columns, **exact}})


def _with_file_name(config: ConvertConfig, tables: InputTables) -> ConvertConfig:
    """Returns the config with the image column of ImageFolder if the table lacks another one."""
    schema = config.dataset_schema
    is_named = not schema.has_image or schema.image.column in tables.columns
    named = {} if is_named or FILE_NAME not in tables.columns else {schema.image.column: FILE_NAME}
    return config.model_copy(update={"columns": {**named, **config.columns}})


Model = TypeVar("Model", bound=BaseModel)

_MAX_CLASSES_BYTES = 64 * 2**20
_CLASSES = "expected a file of class names, one per line, in JSON (.json) or a label map (.pbtxt)"

_BLOCKS: dict[str, type[BaseModel]] = {
    "image": ImageSettings,
    "boxes": BoxSettings,
    "masks": MaskSettings,
}


def _with_settings(schema: Schema, block: str, overrides: Mapping[str, Any]) -> Schema:
    """Returns a schema in which some settings of a block are replaced.

    `overrides`: values by setting; numbers can be text. Raises UsageError: for an unknown setting,
    or one that conflicts with another.
    """
    if not overrides:
        return schema
    known = _BLOCKS[block].model_fields
    if unknown := sorted(overrides.keys() - known.keys()):
        guess = did_you_mean(unknown[0], known)
        raise UsageError(
            f"--{block} {unknown[0]}: unknown setting{guess}; available: {', '.join(known)}"
        )
    kept = getattr(schema, block).model_dump(exclude_unset=True)
    if "column" in overrides:
        kept.pop("columns", None)  # boxes come either from `columns` or from `column`
    # Flags state settings as text, which the models do not convert: numbers are converted here.
    typed = {k: int(v) if is_integer(str(v)) else v for k, v in overrides.items()}
    try:
        settings = _BLOCKS[block].model_validate({**kept, **typed})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ",".join(overrides)
        shown = f"{name}={overrides[name]}" if name in overrides else name
        message = problem_of_value(first, repr(first["input"]))
        raise UsageError(f"--{block} {shown}: {message}") from error
    return schema.model_copy(update={block: settings})


def _overridden(schema: Schema, changes: SchemaOverrides) -> Schema:
    timeout = {"timeout": changes.image_timeout} if changes.image_timeout is not None else {}
    schema = _with_settings(schema, "image", changes.image | timeout)
    schema = _with_settings(schema, "boxes", changes.boxes)
    schema = _with_settings(schema, "masks", changes.masks)
    update = changes.model_dump(include={"label_offset", "first_label"}, exclude_none=True)
    if update and not schema.named_features:
        what = f"schema {schema.name!r} has no class labels. Remove the option."
        raise UsageError(f"--{next(iter(update))}: {what}")
    features = {
        name: feature.model_copy(update=update) if feature.classes else feature
        for name, feature in schema.features.items()
    }
    return schema.model_copy(update={"features": features})


def beam_options(rest: Sequence[str]) -> PipelineOptions:
    """Returns the pipeline options for the flags that are not recordmill's own.

    Raises UsageError for a flag that is unknown to Beam, which Beam would silently ignore; or if
    the runner lacks a required option.
    """
    parser = Parser(prog="recordmill convert", allow_abbrev=False, add_help=False)
    for known in (WebOptions, *PipelineOptions.__subclasses__()):
        try:
            known._add_argparse_args(parser)
        except argparse.ArgumentError:  # declared already, as by two of Beam's classes
            continue
    _, unknown = parser.parse_known_args(list(rest))
    if unknown:
        ours = Parser(add_help=False)
        add_convert_options(ours)
        raise parser.unknown(unknown[0], [*ours.flags(), *parser.flags()])
    options = PipelineOptions(list(rest))
    resolve_options(options)
    return options


def load_schema(name: str) -> Schema:
    """Returns the schema of a preset or of a YAML file.

    Raises UsageError if neither exists, or the file is not a valid schema.
    """
    if "." not in name:
        return preset(name)
    try:
        # parse_schema() limits characters, of which UTF-8 has up to four bytes.
        return parse_schema(_read_at_most(name, 4 * MAX_LENGTH), name)
    except ValueError as error:
        expected = f"expected a YAML file or one of: {', '.join(preset_names())}"
        raise UsageError(f"--schema {name}: {error}; {expected}") from error


def _read_at_most(path: str, size: int) -> bytes:
    """Returns the first `size` + 1 bytes of a file; raises ValueError if it cannot be read."""
    try:
        if not exists(path):
            raise ValueError("no such file")
        with open_binary(path) as stream:
            return stream.read(size + 1)
    except IsADirectoryError as error:
        raise ValueError("is a folder") from error
    except NotRegularError as error:
        raise ValueError(error.args[0]) from error
    except OSError as error:
        raise ValueError(error.strerror or error) from error


def _class_names(path: str) -> tuple[tuple[str, ...], int | None]:
    """Returns the names of a file, and the id of the first one if it is not 0."""
    try:
        data = _read_at_most(path, _MAX_CLASSES_BYTES)
        if len(data) > _MAX_CLASSES_BYTES:
            raise ValueError(f"is larger than {_MAX_CLASSES_BYTES:,} bytes")
        lines, first = names_in(data.decode("utf-8-sig"), path)
        if not lines:
            raise ValueError("the file is empty")
        for number, line in enumerate(lines, start=1):
            if not is_class_name(line):
                what = "is not a class name: it is empty, or has spaces around it"
                raise ValueError(f"line {number}: {line!r} {what}")
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not valid UTF-8"
        raise UsageError(f"--classes {path}: {what}; {_CLASSES}") from error
    except ValueError as error:
        raise UsageError(f"--classes {path}: {error}; {_CLASSES}") from error
    return tuple(lines), first or None


def _croissant_properties(path: str) -> Properties:
    try:
        data = _read_at_most(path, 4 * MAX_LENGTH)
    except ValueError as error:
        raise UsageError(f"--croissant {path}: {error}. Name a YAML file.") from error
    return parse_properties(data, path)


def _checked(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Validates option values, and returns the model.

    Raises UsageError: for the first value that is not valid.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        problem = problem_of_value(first, repr(first["input"]))
        if not first["loc"]:
            raise UsageError(problem) from error
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise UsageError(f"--{name}: is required. Add it.") from error
        # An option states what it expects in the words of its help, a model in those of its types.
        expected = {o.name: o.option.expected for o in options_of(model)}.get(name)
        problem = f"expected {expected}" if expected else problem
        raise UsageError(f"--{name} {_as_typed(values.get(name, ''))}: {problem}") from error


def _as_typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return value
