"""Finds and probes the inputs, so that unreadable ones fail here and not in a worker."""

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
    """The tables of a run, or its other sources.

    Attributes:
        files: in the order of the inputs, those of one pattern sorted.
        columns: the names that all of them have; for JSONL, those of the first rows.
        has_rows: whether any row was seen; a table may well have none.
        unsupported: column to its type, where that makes no feature.
        embedded: the columns that hold images themselves, or may do.
    """

    files: tuple[TableFile, ...]
    columns: tuple[str, ...]
    has_rows: bool
    unsupported: Mapping[str, str]
    embedded: frozenset[str] = frozenset()


def probe_tables(config: ConvertConfig) -> InputTables:
    """Returns the input, with each file probed.

    Raises:
        UsageError: if there is none, or a file cannot be read as what it should be.
    """
    if config.image_root is not None:
        _check_root(config.image_root)
    tables = _probe_all("--input", config.inputs, config.input_format)
    known = [file for file in tables.files if file.format in _WITH_IMAGES]
    if config.image_root is not None and known:
        raise UsageError(
            f"--image_root: {known[0].path} is of format {known[0].format}, which has its images "
            "in itself; drop the flag"
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
    """Returns the tables that are joined to the input, if any are.

    Raises:
        UsageError: if they cannot be read.
    """
    return None if config.labels is None else _probe_all("--labels", (config.labels,), "auto")


def _probe_all(flag: str, patterns: Sequence[str], input_format: str) -> InputTables:
    paths = [path for pattern in patterns for path in _expand(flag, pattern)]
    if repeated := [path for path, count in Counter(paths).items() if count > 1]:
        raise UsageError(f"{flag} names {min(repeated)} twice; each row would be read twice")
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
    """Returns the files of an input: itself if it is a file, what the pattern matches otherwise."""
    if _is_folder(pattern):
        return [pattern]
    try:
        found = expand(pattern)
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag} {pattern}: cannot be listed: {error}") from error
    if not found:
        raise UsageError(
            f"{flag} {pattern}: no such file{_near(pattern)}; check the path and its permissions"
        )
    return found


def _near(path: str) -> str:
    """Returns a guess which path was meant."""
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
        remedy = "since tables are read more than once. Write it to a file first."
        raise UsageError(f"{flag} {path}: {error}, {remedy}") from error
    except (OSError, EOFError, ValueError, MemoryError, zlib.error, pa.ArrowException) as error:
        why = str(error) or "it asks for more memory than there is"  # as a damaged length does
        raise UsageError(f"{flag} {path}: cannot be read as a table: {why}") from error


def _is_folder(path: str) -> bool:
    """Returns whether a path is a folder; in an object store, if it ends as folders do."""
    return os.path.isdir(path) if is_local(path) else path.endswith("/")


def _folder(path: str, input_format: str) -> TableFile:
    root = path.rstrip("/") or "/"
    found = "folder" if input_format == "auto" else input_format
    if all(exists(layout.join(root, name)) for name in (layout.SUCCESS, layout.MANIFEST)):
        raise UsageError(f"{path}: is a dataset; to read its records say {root}/*.tfrecord*")
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
        raise UsageError(f"{path}: cannot detect the format from the name; set --input_format")
    if FORMATS[found].is_folder:
        raise UsageError(f"{path}: is a file; format {found} is a folder's")
    if not head and (found != "tfrecord" or path.endswith(".gz")):  # a shard may have no record
        raise UsageError(f"{path}: the file is empty; expected a table: write it again")
    size = ranged_size(path) if found in TEXT_FORMATS else None
    return TableFile(path, found, head.startswith(_GZIP), size)


def with_labels(
    tables: InputTables, labels: InputTables | None, join_on: str | None
) -> InputTables:
    """Returns both tables as one: the columns of joined rows.

    Raises:
        UsageError: if one of them lacks the column that they are joined on.
    """
    if labels is None or join_on is None:
        return tables
    for side in (tables, labels):
        if join_on not in side.columns:
            raise UsageError(
                f"--join_on {join_on}: {side.files[0].path} has no such column; it has: "
                f"{', '.join(side.columns) or 'none'}"
            )
    return replace(
        tables,
        columns=tuple(dict.fromkeys((*tables.columns, *labels.columns))),
        unsupported={**tables.unsupported, **labels.unsupported},
    )


def _common_columns(tables: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the columns that all tables have, in the first one's order."""
    shared = set(tables[0]).intersection(*tables) if tables else set[str]()
    return tuple(name for name in tables[0] if name in shared) if tables else ()
