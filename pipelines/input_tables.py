"""Lists and probes the inputs, so that unreadable files fail before the pipeline starts."""

from __future__ import annotations

import os
import posixpath
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.layout import check_utf8
from recordmill.schemas.masking import masked_url
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.tables import SPLIT, DeclaredClasses, Probe, TableFile
from recordmill.transforms.functional.addresses import parse_web_address
from recordmill.transforms.functional.rows.binding import common_folder
from recordmill.transforms.functional.sources.data_files import DataFile
from recordmill.transforms.functional.sources.delimited import (
    DELIMITERS,
    DelimitedOptions,
    header_of,
)
from recordmill.transforms.functional.sources.folder_layouts import Layout
from recordmill.transforms.storage.files import (
    exists,
    open_table,
)
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.storage.listing import ListedPath, list_paths, similar_path
from recordmill.transforms.storage.local_files import NotRegularError
from recordmill.transforms.storage.recognition import sources_of
from recordmill.transforms.storage.record_folders import (
    Metadata,
    described,
    metadata_in,
    metadata_of,
)

_WITH_IMAGES = ("tar",)
_THREADS = 16
_SHOWN_IDS = 3


@dataclass(frozen=True)
class InputTables:
    """The probed input files of a run."""

    # The files in the order of the inputs; those of a pattern are sorted. A lakehouse table without
    # rows has none.
    files: tuple[TableFile, ...]
    # The columns that all files have; for JSONL, those of the first rows. Without rows, there may
    # be none.
    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str]  # types of the columns that cannot become features, by column
    embedded: frozenset[str] = frozenset()  # the columns that may contain image bytes
    # The columns of structs, whose fields are columns of their own.
    structs: frozenset[str] = frozenset()
    classes: Mapping[str, DeclaredClasses] = field(default_factory=dict)
    splits: tuple[str, ...] = ()  # the splits that the files state in the column `SPLIT`
    unsplit: str = ""  # a file that states no split, although others do; "" if there is none
    preset: str = ""  # the preset whose features the columns have; "" for the default
    recognized: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # what was noticed in them
    snapshots: tuple[TableSnapshot, ...] = ()
    schemas: tuple[Schema, ...] = ()
    # The columns of unencoded pixels, with their shape.
    raw: Mapping[str, str] = field(default_factory=dict)
    # The columns that have values of other columns, under the names of a schema.
    derived: frozenset[str] = frozenset()

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
    """Lists and probes the files of `--input`.

    `since` is the snapshots of lakehouse tables whose rows are not read, by the id of the table.
    Raises UsageError if there is no file, or a file cannot be read in its format.
    """
    if config.image_root is not None:
        _check_root(config.image_root)
    tables = _probe_all("--input", config.inputs, config.input_format, config, since)
    known = [file for file in tables.files if file.format in _WITH_IMAGES]
    if config.image_root is not None and known:
        raise UsageError(
            f"--image_root: {known[0].path} has format {known[0].format}, which contains its "
            "images. Remove --image_root."
        )
    return tables


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
    """Lists and probes the files of `--labels`; returns None if the option is not set.

    Raises UsageError if there is no file, if a file cannot be read in its format, or for a
    lakehouse table without rows.
    """
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
    try:
        listed = [found for pattern in patterns for found in list_paths(pattern, input_format)]
    except UsageError as error:
        raise UsageError(f"{flag} {error}") from error
    paths = [path for path, _, _ in listed]
    if repeated := [path for path, count in Counter(paths).items() if count > 1]:
        raise UsageError(f"{flag}: {min(repeated)} is matched twice. Give each file once.")
    with ThreadPoolExecutor(_THREADS) as executor:
        found = list(
            executor.map(lambda path: _sources(flag, path, input_format, config, since), paths)
        )
        # A folder with annotation files is listed as one path, and read as several files.
        parts = [(file, at) for one, at in zip(found, listed, strict=True) for file in one.files]
        with _reading(flag, paths[0]):
            files = _with_metadata([file for file, _ in parts])
        parts = [(file, at) for file, (_, at) in zip(files, parts, strict=True)]
        shown = list(executor.map(lambda part: _probe(flag, *part), parts))
    probed = [
        _with_partition(file, probe, at) for (file, at), probe in zip(parts, shown, strict=True)
    ]
    _check_folders(flag, [where for _, where in parts], [probe for _, probe in probed])
    if not any(file.format in DELIMITERS for file, _ in probed):
        _check_no_text_options(flag, config)
    recognized = (
        f"{masked_url(path)}: read as {one.text}"
        for path, one in zip(paths, found, strict=True)
        if one.text
    )
    return replace(
        _merged(flag, probed, list(chain(*(one.findings for one in found)))),
        recognized=(*recognized, *_dataset_lines([file for file, _ in probed])),
        snapshots=tuple(one.snapshot for one in found if one.snapshot),
    )


def _merged(
    flag: str, probed: Sequence[tuple[TableFile, Probe]], findings: Sequence[Finding]
) -> InputTables:
    """Returns the files with what they have in common."""
    probes = [probe for _, probe in probed]
    columns = _common_columns([probe.columns for probe in probes if probe.columns])
    splits = dict.fromkeys(split for probe in probes for split in probe.splits)
    presets = {probe.preset for probe in probes if probe.columns}
    classes = _merged_classes(flag, probed)
    return InputTables(
        files=tuple(file for file, _ in probed),
        columns=columns,
        has_rows=any(probe.has_rows for probe in probes),
        unsupported={name: type_ for probe in probes for name, type_ in probe.unsupported.items()},
        embedded=frozenset().union(*(probe.embedded for probe in probes)),
        structs=frozenset().union(*(probe.structs for probe in probes)),
        classes=classes,
        splits=tuple(splits),
        unsplit=next((file.path for file, p in probed if splits and _lacks_split(file, p)), ""),
        preset=presets.pop() if len(presets) == 1 else "",
        schemas=_distinct([probe.schema for probe in probes if probe.schema]),
        raw={name: what for probe in probes for name, what in probe.raw.items()},
        derived=frozenset().union(*(probe.derived for probe in probes)),
        findings=(
            *findings,
            *chain(*(probe.findings for probe in probes)),
            *_merge_findings(probed, classes),
        ),
    )


def _distinct(schemas: Sequence[Schema]) -> tuple[Schema, ...]:
    """Returns the schemas without those that are equal to one before."""
    found = list[Schema]()
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return tuple(found)


def _with_metadata(files: Sequence[TableFile]) -> list[TableFile]:
    """Returns TFRecord files with what describes their records, and other files as they are."""
    folders = {posixpath.dirname(file.path) for file in files if file.format == "tfrecord"}
    if not folders:
        return list(files)
    metadata = {folder: metadata_of(folder or ".") for folder in sorted(folders)}
    prefixes = _key_prefixes([found for found in metadata.values() if found])
    described_files = list[TableFile]()
    for file in files:
        found = metadata.get(posixpath.dirname(file.path)) if file.format == "tfrecord" else None
        if found and _describes(found, file):
            file = replace(file, options=found, key_prefix=prefixes.get(found, ""))
        described_files.append(file)
    return described_files


def _describes(metadata: Metadata, file: TableFile) -> bool:
    """Returns whether metadata is about a file: a dataset lists its shards."""
    shards = described(metadata).shards
    return not shards or posixpath.basename(file.path) in shards


def _key_prefixes(metadata: Sequence[Metadata]) -> dict[Metadata, str]:
    """Returns a folder for the keys of each of several datasets, whose keys may be equal."""
    datasets = {found: one for found in metadata if (one := described(found)).shards}
    if len(datasets) < 2:
        return {}
    root = common_folder([f"{found.folder}/" for found in datasets])
    for names in (
        [one.name for one in datasets.values()],
        [f"{one.name}/{one.version}" for one in datasets.values()],
        [found.folder.removeprefix(root) for found in datasets],
    ):
        if len(set(names)) == len(names):
            break
    return {found: f"{name}/" for found, name in zip(datasets, names, strict=True)}


def _lacks_split(file: TableFile, probe: Probe) -> bool:
    """Returns whether rows have no split; annotated folders have the column in any case."""
    if SPLIT in probe.columns:
        return FORMATS[file.format].is_folder and not probe.splits
    return bool(probe.columns)


def _merged_classes(
    flag: str, probed: Sequence[tuple[TableFile, Probe]]
) -> dict[str, DeclaredClasses]:
    merged: dict[str, DeclaredClasses] = {}
    for file, probe in probed:
        for column, classes in probe.classes.items():
            where = f"{masked_url(file.path)}: the classes of column {column!r}"
            try:
                known = merged.get(column)
                merged[column] = known.merge(classes, where) if known else classes
            except UsageError as error:
                raise UsageError(f"{flag} {error}") from error
    return merged


def _dataset_lines(files: Sequence[TableFile]) -> Iterator[str]:
    for found in dict.fromkeys(filter(None, map(metadata_in, files))):
        if (dataset := described(found)).shards:
            yield f"{masked_url(found.folder)}: read as dataset {dataset.name} {dataset.version}"


def _merge_findings(
    probed: Sequence[tuple[TableFile, Probe]], classes: Mapping[str, DeclaredClasses]
) -> Iterator[Finding]:
    """Yields the differences of keys and class ids from those of the datasets."""
    if prefixes := [file.key_prefix for file, _ in probed if metadata_in(file) and file.key_prefix]:
        listed = ", ".join(dict.fromkeys(prefixes))
        text = f"the keys of several datasets begin with {listed}"
        yield Finding(
            kind="key_prefixes", severity="note", text=text, hint="--key_column sets others"
        )
    changes = dict.fromkeys(
        (metadata.folder if (metadata := metadata_in(file)) else file.path, change)
        for file, probe in probed
        for column, found in probe.classes.items()
        if (change := _changed_ids(found, classes[column]))
    )
    for where, change in changes:
        text = f"{masked_url(where)}: class ids are remapped by name: {change}"
        yield Finding(kind="remapped_classes", severity="note", text=text)


def _changed_ids(before: DeclaredClasses, after: DeclaredClasses) -> str:
    """Returns the ids that classes have after they were merged by name, where they differ."""
    ids = {name: id_ for id_, name in after.names} if before.by_name and after.by_name else {}
    changed = [(name, id_) for id_, name in before.names if ids.get(name, id_) != id_]
    shown = ", ".join(f"{name} {id_} → {ids[name]}" for name, id_ in changed[:_SHOWN_IDS])
    return f"{shown}, …" if len(changed) > _SHOWN_IDS else shown


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


def _check_folders(flag: str, listed: Sequence[ListedPath], probes: Sequence[Probe]) -> None:
    """Checks that the tables in one folder have the same columns, as parts of one table have."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for (path, _, folder), probe in zip(listed, probes, strict=True):
        if not folder or not probe.columns:
            continue
        other, columns = first.setdefault(folder, (path, probe.columns))
        if differing := sorted({*columns} ^ {*probe.columns}):
            has, lacks = (other, path) if differing[0] in columns else (path, other)
            raise UsageError(
                f"{flag} {folder}: its tables have different columns: {has} has {differing[0]!r}, "
                f"and {lacks} has not. Name one of them, or a pattern of parts of one table."
            )


def _check_no_text_options(flag: str, config: ConvertConfig) -> None:
    given = {"--delimiter": config.delimiter, "--header": config.header}
    names = [name for name, value in given.items() if value is not None]
    if names and flag == "--input" and config.labels is None:
        raise UsageError(f"{names[0]}: the input has no CSV or TSV table. Remove the option.")


def _sources(
    flag: str, path: str, input_format: str, config: ConvertConfig, since: Mapping[str, int]
) -> Layout:
    with _reading(flag, path):
        check_utf8(path)
        is_input = flag == "--input"
        has_labels = is_input and config.labels is not None
        found = sources_of(
            path, input_format, has_images=is_input, has_labels=has_labels, since=since
        )
        files = (
            _with_text_options(f, config) if f.format in DELIMITERS else f for f in found.files
        )
        return found._replace(files=tuple(files))


def _probe(flag: str, file: TableFile, found: ListedPath) -> Probe:
    # The file of a lakehouse table is named, not the table.
    with _reading(flag, file.path if isinstance(file.options, DataFile) else found.path):
        return FORMATS[file.format].probe(file)


@contextmanager
def _reading(flag: str, path: str) -> Iterator[None]:
    """Raises the errors of reading an input as usage errors."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{flag} {error}") from error
    except NotRegularError as error:  # as <(...) is in a shell
        why = "because tables are read more than once"
        raise UsageError(f"{flag} {path}: {error}, {why}. Write it to a file first.") from error
    except (OSError, EOFError, ValueError, MemoryError, zlib.error, pa.ArrowException) as error:
        # A damaged length field can request any amount of memory; MemoryError has no text.
        why = str(error) or "it requests more memory than is available"
        raise UsageError(f"{flag} {path}: cannot be read as a table: {why}") from error


def _with_text_options(file: TableFile, config: ConvertConfig) -> TableFile:
    """Returns a CSV or TSV table with the delimiter and the columns that options state."""
    options = DelimitedOptions(config.delimiter or "", config.header or ())
    file = replace(file, options=options)
    if config.header != ():
        return file
    with open_table(file) as stream:
        header = tuple(map(str, range(len(header_of(stream, file)))))
    return replace(file, options=replace(options, header=header))


def check_join_columns(
    tables: InputTables, labels: InputTables, join_columns: tuple[str, str]
) -> None:
    """Checks that the input and its labels have the columns that they are joined on.

    Raises UsageError if a side lacks its column.
    """
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
