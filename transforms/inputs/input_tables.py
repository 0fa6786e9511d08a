"""Lists and probes the inputs, so that unreadable files fail before the pipeline starts."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding, counted, finding, some
from recordmill.schemas.layout import check_utf8
from recordmill.schemas.masking import masked_url
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.tables import SPLIT, DeclaredClasses, Exclusion, Probe, Sources, TableFile
from recordmill.transforms.functional.addresses import parse_web_address
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, not_a_table
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.rows.columns import needed_columns
from recordmill.transforms.functional.sources import delimited
from recordmill.transforms.functional.sources.box_rows import header_of_boxes
from recordmill.transforms.functional.sources.parquet import DataFile
from recordmill.transforms.inputs.file_tree import FileTree, unused_patterns
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.paths import ListedPath, is_folder, list_paths, similar_path
from recordmill.transforms.inputs.recognize import sources_of
from recordmill.transforms.inputs.record_folders import dataset_lines, metadata_in, with_metadata
from recordmill.transforms.storage.files import exists, open_binary, open_table
from recordmill.transforms.storage.local_files import NotRegularError

# What a source may raise that cannot be read.
UNREADABLE_SOURCE = (OSError, *DAMAGED_STREAM, ValueError, MemoryError, pa.ArrowException)

_WITH_IMAGES = ("tar",)
_SHOWN = 3


@dataclass(frozen=True)
class InputTables(Probe):
    """The probed input files of a run, and what they have in common."""

    # In the order of the inputs; those of a pattern are sorted. A lakehouse table without rows has
    # none.
    files: tuple[TableFile, ...] = ()
    partial: frozenset[str] = frozenset()  # the columns that only some files have
    narrowest: str = ""  # a file with the fewest columns, or several; "" without files
    unsplit: str = ""  # a file that states no split, although others do; "" if there is none
    recognized: tuple[str, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()
    schemas: tuple[Schema, ...] = ()

    @property
    def are_tables(self) -> bool:
        """Whether all files are tables, not annotations or folders of images."""
        return all(file.declared.is_table for file in self.files)

    @property
    def fields(self) -> dict[str, list[str]]:
        """The fields of each column of structs, which are columns, too."""
        return {
            name: [column for column in self.columns if column.startswith(f"{name}.")]
            for name in sorted(self.structs)
        }


def probe_tables(
    config: ConvertConfig, since: Mapping[str, int] = MappingProxyType({})
) -> InputTables:
    """Lists and probes the files of `--input`; raises UsageError if one cannot be read.

    `since` is the snapshots of lakehouse tables whose rows are not read, by the id of the table.
    """
    if config.image_root is not None:
        _check_root(config.image_root)
    findings = tuple(_unused_patterns(config))
    tables = _probe_all("--input", config.inputs, config.input_format, config, since)
    tables = replace(tables, findings=(*tables.findings, *findings))
    given = {"--delimiter": config.delimiter, "--header": config.header}
    names = [name for name, value in given.items() if value is not None]
    has_text = config.labels or any(file.format in delimited.DELIMITERS for file in tables.files)
    if names and not has_text:
        raise UsageError(f"{names[0]}: the input has no CSV or TSV table. Remove the option.")
    known = [file for file in tables.files if file.format in _WITH_IMAGES]
    if config.image_root is not None and known:
        raise UsageError(
            f"--image_root: {known[0].path} has format {known[0].format}, which contains its "
            "images. Remove --image_root."
        )
    return tables


def _unused_patterns(config: ConvertConfig) -> Iterator[Finding]:
    """Yields patterns that leave nothing out of folders; raises UsageError without a folder."""
    folders = [path.rstrip("/") or "/" for path in config.inputs if is_folder(path)]
    for flag, value in (("--exclude", config.exclude), ("--class_level", config.class_level)):
        if value and not folders:
            raise UsageError(f"{flag}: applies to folders, and no --input is one. Remove it.")
    if not config.exclude:
        return  # without walking the folders
    unused = [unused_patterns(FileTree(root, Exclusion(root, config.exclude))) for root in folders]
    for pattern in config.exclude:
        if all(pattern in patterns for patterns in unused):
            yield finding("warning", "unused_pattern", f"--exclude {pattern}: leaves nothing out")


def _check_root(root: str) -> None:
    if os.path.isfile(root):
        raise UsageError(f"--image_root {root}: is a file; expected a folder")
    shown = masked_url(root)
    try:
        if layout.is_web(root):
            parse_web_address(root)  # the web has no folders
        elif not exists(root):
            raise UsageError(
                f"--image_root {shown}: no such folder{similar_path(root)}. Check the path."
            )
    except ValueError as error:
        raise UsageError(f"--image_root {shown}: is not a valid web address, {error}") from error
    except OSError:  # images may be readable in a store where nothing may be listed
        return


def probe_labels(config: ConvertConfig) -> InputTables | None:
    """Lists and probes the files of `--labels`, if it is set; UsageError if they have no rows."""
    if config.labels is None:
        return None
    labels = _probe_all("--labels", (config.labels,), "auto", config, {})
    if not labels.files:
        raise UsageError(f"--labels {config.labels}: has no rows. Add some.")
    return labels


def _probe_all(
    flag: str,
    patterns: Sequence[str],
    input_format: str,
    config: ConvertConfig,
    since: Mapping[str, int],
) -> InputTables:
    is_input = flag == "--input"
    exclude, level = (config.exclude, config.class_level) if is_input else ((), None)
    with _named_in_errors(flag):
        listed = [at for one in patterns for at in list_paths(one, input_format, exclude)]
        paths = [at.path for at in listed]
        if repeated := [path for path, count in Counter(paths).items() if count > 1]:
            raise UsageError(f"{min(repeated)}: is matched twice. Give each file once.")

        def sources(path: str) -> Sources:
            has_labels = is_input and config.labels is not None
            with _reading(path):
                check_utf8(path)
                return sources_of(path, input_format, is_input, has_labels, since, exclude, level)

        found = list(map_in_threads(sources, paths))
        # A folder with annotation files is listed as one path, and read as several files.
        places = [at for one, at in zip(found, listed, strict=True) for _ in one.files]
        with _reading(paths[0]):
            files = with_metadata(list(chain(*(one.files for one in found))))
        if not is_input or config.image_root is not None:
            files = [replace(file, image_folder="") for file in files]
        placed = list(zip(files, places, strict=True))
        probed = list(map_in_threads(lambda at: _probe(*at, config), placed))
        _check_folders(places, [probe for _, probe in probed])
        merged = _merged(probed, list(chain(*(one.findings for one in found))))
    recognized = (
        f"{masked_url(path)}: read as {one.text}"
        for path, one in zip(paths, found, strict=True)
        if one.text
    )
    return replace(
        merged,
        recognized=(*recognized, *dataset_lines(files)),
        snapshots=tuple(one.snapshot for one in found if one.snapshot),
    )


@contextmanager
def _named_in_errors(flag: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{flag} {error}") from error


def _merged(probed: Sequence[tuple[TableFile, Probe]], findings: Sequence[Finding]) -> InputTables:
    probes = [probe for _, probe in probed]
    columns = _common_columns([probe.columns for probe in probes if probe.columns])
    splits = dict.fromkeys(split for probe in probes for split in probe.splits)
    presets = {probe.preset for probe in probes if probe.columns}
    classes = _merged_classes(probed)
    schemas = [probe.schema for probe in probes if probe.schema]
    file_with = {probe.columns: file.path for file, probe in reversed(probed)}
    least = min(map(len, filter(None, file_with)), default=0)
    of_probes = chain(*(probe.findings for probe in probes))
    return InputTables(
        files=tuple(file for file, _ in probed),
        columns=columns,
        partial=frozenset(chain(*(probe.columns for probe in probes))).difference(columns),
        narrowest=" or ".join(sorted(f for c, f in file_with.items() if len(c) == least)[:_SHOWN]),
        has_rows=any(probe.has_rows for probe in probes),
        unsupported={name: type_ for probe in probes for name, type_ in probe.unsupported.items()},
        embedded=frozenset().union(*(probe.embedded for probe in probes)),
        structs=frozenset().union(*(probe.structs for probe in probes)),
        classes=classes,
        splits=tuple(splits),
        unsplit=next((file.path for file, p in probed if splits and _lacks_split(file, p)), ""),
        preset=presets.pop() if len(presets) == 1 else "",
        schemas=tuple(one for number, one in enumerate(schemas) if one not in schemas[:number]),
        raw={name: what for probe in probes for name, what in probe.raw.items()},
        reads={name: keys for probe in probes for name, keys in probe.reads.items()},
        findings=(*findings, *of_probes, *_merge_findings(probed, classes)),
    )


def _lacks_split(file: TableFile, probe: Probe) -> bool:
    """Returns whether rows have no split; annotated folders have the column in any case."""
    if SPLIT in probe.columns:
        return file.declared.is_folder and not probe.splits
    return bool(probe.columns)


def _merged_classes(probed: Sequence[tuple[TableFile, Probe]]) -> dict[str, DeclaredClasses]:
    merged: dict[str, DeclaredClasses] = {}
    for file, probe in probed:
        for column, classes in probe.classes.items():
            where = f"{masked_url(file.path)}: the classes of column {column!r}"
            known = merged.get(column)
            merged[column] = known.merge(classes, where) if known else classes
    return merged


def _merge_findings(
    probed: Sequence[tuple[TableFile, Probe]], classes: Mapping[str, DeclaredClasses]
) -> Iterator[Finding]:
    """Yields the differences of keys and class ids from those of the datasets."""
    if prefixes := [file.key_prefix for file, _ in probed if metadata_in(file) and file.key_prefix]:
        listed = ", ".join(dict.fromkeys(prefixes))
        text = f"the keys of several datasets begin with {listed}"
        yield finding("note", "key_prefixes", text, "--key_column sets others")
    changes = dict.fromkeys(
        (metadata.folder if (metadata := metadata_in(file)) else file.path, change)
        for file, probe in probed
        for column, found in probe.classes.items()
        if (change := _changed_ids(found, classes[column]))
    )
    for where, change in changes:
        text = f"{masked_url(where)}: class ids are remapped by name: {change}"
        yield finding("note", "remapped_classes", text)


def _changed_ids(before: DeclaredClasses, after: DeclaredClasses) -> str:
    """Returns the ids that classes have after they were merged by name, where they differ."""
    ids = {name: id_ for id_, name in after.names} if before.by_name and after.by_name else {}
    changed = [(name, id_) for id_, name in before.names if ids.get(name, id_) != id_]
    shown = ", ".join(f"{name} {id_} → {ids[name]}" for name, id_ in changed[:_SHOWN])
    return f"{shown}, …" if len(changed) > _SHOWN else shown


def _with_partition(file: TableFile, probe: Probe, found: ListedPath) -> tuple[TableFile, Probe]:
    """Returns a file and its columns with those of its partition that it does not have itself."""
    stated = (*file.partition, *found.partition)
    partition = tuple(pair for pair in stated if pair[0] not in probe.columns)
    # A file without rows that states no columns does not lack those of the others.
    named = partition if probe.columns or probe.has_rows else ()
    names = tuple(dict.fromkeys(column for column, _ in named))
    splits = tuple(value for column, value in partition if column == SPLIT and value)
    return (
        replace(file, partition=partition),
        replace(probe, columns=(*probe.columns, *names), splits=(*probe.splits, *splits)),
    )


def _check_folders(listed: Sequence[ListedPath], probes: Sequence[Probe]) -> None:
    """Checks that the tables in one folder have the same columns, as parts of one table have."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for (path, _, folder), probe in zip(listed, probes, strict=True):
        if not folder or not probe.columns:
            continue
        other, columns = first.setdefault(folder, (path, probe.columns))
        if differing := sorted({*columns} ^ {*probe.columns}):
            has, lacks = (other, path) if differing[0] in columns else (path, other)
            raise UsageError(
                f"{folder}: its tables have different columns: {has} has {differing[0]!r}, "
                f"and {lacks} has not. Name one of them, or a pattern of parts of one table."
            )


def _probe(file: TableFile, found: ListedPath, config: ConvertConfig) -> tuple[TableFile, Probe]:
    # The file of a lakehouse table is named, not the table.
    with _reading(file.path if isinstance(file.options, DataFile) else found.path):
        if file.format in delimited.DELIMITERS:
            file = _with_text_options(file, config)
        return _with_partition(file, FORMATS[file.format].probe(file), found)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raises the errors of reading an input as usage errors."""
    try:
        yield
    except UsageError:
        raise
    except NotRegularError as error:  # as <(...) is in a shell
        why = "because tables are read more than once"
        raise UsageError(f"{path}: {error}, {why}. Write it to a file first.") from error
    except UNREADABLE_SOURCE as error:
        what = ""
        with suppress(*UNREADABLE_SOURCE), open_binary(path) as stream:
            what = not_a_table(stream.read(HEAD_BYTES))
        # A damaged length field can request any amount of memory; MemoryError has no text.
        why = what or str(error) or "it requests more memory than is available"
        raise UsageError(f"{path}: cannot be read as a table: {why}") from error


def _with_text_options(file: TableFile, config: ConvertConfig) -> TableFile:
    """Returns a CSV or TSV table with the delimiter and the columns that options state."""
    options = delimited.DelimitedOptions(config.delimiter or "", config.header or ())
    file = replace(file, options=options)
    if config.header:
        return file
    try:
        with open_table(file) as stream:
            first = delimited.header_of(stream, file)
    except ValueError:
        if config.header is None:
            return file  # reported when it is probed
        raise
    header = tuple(map(str, range(len(first)))) if config.header == () else header_of_boxes(first)
    return replace(file, options=replace(options, header=header))


def check_join_columns(
    tables: InputTables, labels: InputTables, join_columns: tuple[str, str]
) -> None:
    """Raises UsageError if the input or its labels lack the column that they are joined on."""
    of_input, of_labels = join_columns
    remedies = (f"COLUMN={of_labels}", f"{of_input}=COLUMN")
    for side, column, remedy in zip((tables, labels), join_columns, remedies, strict=True):
        if column not in side.columns:
            raise UsageError(
                f"--join_on {'='.join(dict.fromkeys(join_columns))}: {side.files[0].path} has no "
                f"column {column!r}{did_you_mean(column, side.columns)}; it has: "
                f"{', '.join(side.columns) or 'none'}. Name one of them: --join_on {remedy}."
            )


def with_labels(tables: InputTables, labels: InputTables | None) -> InputTables:
    """Returns the input with the columns that its rows have after the join."""
    if labels is None:
        return tables
    return replace(
        tables,
        columns=tuple(dict.fromkeys((*tables.columns, *labels.columns))),
        unsupported={**tables.unsupported, **labels.unsupported},
        structs=tables.structs | labels.structs,
        classes={c: v for c, v in tables.classes.items() if c not in labels.columns}
        | dict(labels.classes),
        snapshots=(*tables.snapshots, *labels.snapshots),
    )


def _common_columns(tables: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the columns that all tables have, in the order of the first table."""
    shared = set(tables[0]).intersection(*tables) if tables else set[str]()
    return tuple(name for name in tables[0] if name in shared) if tables else ()


def unused_columns(
    inputs: Sequence[InputTables], schema: Schema, config: ConvertConfig
) -> Iterator[Finding]:
    """Yields the columns that nothing uses, and those of which that of `--labels` is used."""
    used, left = {*(needed_columns(schema, config) or ())}, dict[str, bool]()
    of_labels = {*inputs[-1].columns}.difference(config.join_columns or ()) if config.labels else ()
    shared = [n for n in inputs[0].columns if n in of_labels and (schema.every_column or n in used)]
    if shared:
        text = f"--input and --labels have {some(shared)}, of which the values of --labels are read"
        yield finding("note", "shared_columns", text, examples=shared)
    for tables in () if schema.every_column else inputs:
        found = (*tables.columns, *sorted(tables.partial))
        columns = dict.fromkeys(n for n in found if n in tables.reads.get(n, [n]))
        if not all(f.declared.is_table or f.format == "tfrecord" for f in tables.files):
            continue
        # Either a column of objects is listed, or those of its fields that are not used.
        above = {n: {n[: dot.start()] for dot in re.finditer(r"\.", n)} for n in columns}
        partly = {name for one in used for name in above.get(one, ())}
        read = {key for name in used for key in tables.reads.get(name, ())}
        # Features that follow from the image or the key are made again.
        made = {n for n, feature in schema.features.items() if feature.column is None}
        known = used | partly | read | made | {*(tables.splits and [SPLIT])}
        left |= {
            name: name in tables.partial
            for name in columns
            if name not in known and partly.issuperset(above[name] & columns.keys())
        }
    if names := [*left]:
        more = f" (and {counted(len(names) - _SHOWN, 'more column')})"
        shown = ", ".join(name or "''" for name in names[:_SHOWN])  # pandas' index has no name
        text = f"not stored: {shown}{more * (len(names) > _SHOWN)}"
        if partial := [name for name in names if left[name]]:
            text += f"; not all files have {some(partial)}"
        hint = "recordmill schema --infer TABLE prints a schema with all columns, for --schema"
        figures = {"columns": len(names)}
        yield finding("info", "unused_columns", text, hint, examples=names, figures=figures)
    # Open Images states with 0 that a class is not in an image.
    doubt = [name for name in names if name.casefold() == "confidence"]
    if doubt and schema.class_features and not (schema.has_boxes or config.where):
        text = f"the column {doubt[0]!r} does not decide which labels are stored"
        hint = f'--where "{doubt[0]} > 0" leaves out those that are 0'
        yield finding("warning", "unused_confidence", text, hint, examples=doubt)
