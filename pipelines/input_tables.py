"""Lists and probes the inputs, so that unreadable files fail before the pipeline starts."""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.layout import check_utf8
from recordmill.schemas.masking import masked_url
from recordmill.schemas.tables import Probe, TableFile
from recordmill.transforms.functional.addresses import parse_web_address
from recordmill.transforms.functional.sources.text_ranges import TEXT_FORMATS
from recordmill.transforms.storage.files import exists, expand, is_local, open_binary, ranged_size
from recordmill.transforms.storage.formats import FORMATS, format_of
from recordmill.transforms.storage.local_files import NotRegularError

_WITH_IMAGES = ("tar",)
_STORE = re.compile(r"(s3|gs|azfs|hdfs|https?):/?(?=[^/])")
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 64
_THREADS = 16


@dataclass(frozen=True)
class InputTables:
    """The probed input files of a run.

    Attributes:
        files: the files in the order of the inputs; those of a pattern are sorted.
        columns: the columns that all files have; for JSONL, those of the first rows.
        has_rows: whether any file has a row.
        unsupported: types of the columns that cannot become features, by column.
        embedded: the columns that may contain image bytes.
    """

    files: tuple[TableFile, ...]
    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str]
    embedded: frozenset[str] = frozenset()


def probe_tables(config: ConvertConfig) -> InputTables:
    """Lists and probes the files of `--input`.

    Raises:
        UsageError: if there is no file, or a file cannot be read in its format.
    """
    if config.image_root is not None:
        _check_root(config.image_root)
    tables = _probe_all("--input", config.inputs, config.input_format)
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
    try:
        if layout.is_web(root):
            parse_web_address(root)
    except ValueError as error:
        shown = masked_url(root)
        raise UsageError(f"--image_root {shown}: is not a valid web address, {error}") from error


def probe_labels(config: ConvertConfig) -> InputTables | None:
    """Lists and probes the files of `--labels`; returns None if the option is not set.

    Raises:
        UsageError: if there is no file, or a file cannot be read in its format.
    """
    return None if config.labels is None else _probe_all("--labels", (config.labels,), "auto")


def _probe_all(flag: str, patterns: Sequence[str], input_format: str) -> InputTables:
    paths = [path for pattern in patterns for path in _expand(flag, pattern)]
    if repeated := [path for path, count in Counter(paths).items() if count > 1]:
        raise UsageError(f"{flag}: {min(repeated)} is matched twice. Give each file once.")
    with ThreadPoolExecutor(_THREADS) as executor:
        probed = list(executor.map(lambda path: _probe(flag, path, input_format), paths))
    probes = [probe for _, probe in probed]
    return InputTables(
        files=tuple(file for file, _ in probed),
        columns=_common_columns([probe.columns for probe in probes if probe.columns]),
        has_rows=any(probe.has_rows for probe in probes),
        unsupported={name: type_ for probe in probes for name, type_ in probe.unsupported.items()},
        embedded=frozenset().union(*(probe.embedded for probe in probes)),
    )


def _expand(flag: str, pattern: str) -> list[str]:
    """Returns the files that a pattern matches; a folder is returned as it is."""
    if _is_folder(pattern):
        return [pattern]
    try:
        found = expand(pattern)
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag} {pattern}: cannot be listed: {error}") from error
    if not found:
        raise UsageError(
            f"{flag} {pattern}: no such file{_near(pattern)}. Check the path and its permissions."
        )
    return found


def _near(path: str) -> str:
    """Returns a suggestion of a similar path, for a message."""
    if store := _STORE.match(path):
        return f" (did you mean {store[1]}://{path[store.end() :]}?)"
    folder = os.path.dirname(path)
    if not is_local(path) or not os.path.isdir(folder or "."):
        return ""
    return did_you_mean(path, [os.path.join(folder, other) for other in os.listdir(folder or ".")])


def _probe(flag: str, path: str, input_format: str) -> tuple[TableFile, Probe]:
    try:
        check_utf8(path)
        file = _folder(path, input_format) if _is_folder(path) else _file(path, input_format)
        return file, FORMATS[file.format].probe(file)
    except UsageError as error:
        raise UsageError(f"{flag} {error}") from error
    except NotRegularError as error:  # as <(...) is in a shell
        why = "because tables are read more than once"
        raise UsageError(f"{flag} {path}: {error}, {why}. Write it to a file first.") from error
    except (OSError, EOFError, ValueError, MemoryError, zlib.error, pa.ArrowException) as error:
        # A damaged length field can request any amount of memory; MemoryError has no text.
        why = str(error) or "it requests more memory than is available"
        raise UsageError(f"{flag} {path}: cannot be read as a table: {why}") from error


def _is_folder(path: str) -> bool:
    """Returns whether a path is a folder; in an object store, whether it ends with a slash."""
    return os.path.isdir(path) if is_local(path) else path.endswith("/")


def _folder(path: str, input_format: str) -> TableFile:
    root = path.rstrip("/") or "/"
    found = "folder" if input_format == "auto" else input_format
    if all(exists(layout.join(root, name)) for name in (layout.SUCCESS, layout.MANIFEST)):
        raise UsageError(f"{path}: is a dataset. To read its records, use {root}/*.tfrecord*.")
    if not FORMATS[found].is_folder:
        raise UsageError(
            f"{path}: is a folder; expected a file of format {found}, or a pattern of them"
        )
    return TableFile(root, found)


def _file(path: str, input_format: str) -> TableFile:
    with open_binary(path) as stream:
        head = stream.read(_HEAD_BYTES)
    found = format_of(path, head) if input_format == "auto" else input_format
    if found is None:
        raise UsageError(f"{path}: unknown format. Set --input_format.")
    if FORMATS[found].is_folder:
        raise UsageError(f"{path}: is a file; expected a folder of format {found}")
    if not head and (found != "tfrecord" or path.endswith(".gz")):  # a shard can have no records
        raise UsageError(f"{path}: the file is empty; expected a table")
    size = ranged_size(path) if found in TEXT_FORMATS else None
    return TableFile(path, found, head.startswith(_GZIP), size)


def with_labels(
    tables: InputTables, labels: InputTables | None, join_on: str | None
) -> InputTables:
    """Returns the input with the columns that its rows have after the join.

    Args:
        tables: the input.
        labels: the tables that are joined to it, or None.
        join_on: the column that both are joined on.

    Raises:
        UsageError: if a side lacks the column that they are joined on.
    """
    if labels is None or join_on is None:
        return tables
    for side in (tables, labels):
        if join_on not in side.columns:
            raise UsageError(
                f"--join_on {join_on}: {side.files[0].path} has no such column; "
                f"available: {', '.join(side.columns) or 'none'}"
            )
    return replace(
        tables,
        columns=tuple(dict.fromkeys((*tables.columns, *labels.columns))),
        unsupported={**tables.unsupported, **labels.unsupported},
    )


def _common_columns(tables: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the columns that all tables have, in the order of the first table."""
    shared = set(tables[0]).intersection(*tables) if tables else set[str]()
    return tuple(name for name in tables[0] if name in shared) if tables else ()
