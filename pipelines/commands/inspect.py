"""`recordmill inspect`: shows records, draws contact sheets, and compares records with a schema."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from recordmill.pipelines.commands.diff import json_value
from recordmill.pipelines.console.terminal import SHOWN, Terminal, say_json
from recordmill.pipelines.inspect.display import (
    ClassNames,
    print_features,
    print_record,
    print_records,
    write_contact_sheet,
)
from recordmill.pipelines.inspect.record_files import FoundRecord, RecordSource
from recordmill.pipelines.options import load_schema
from recordmill.pipelines.parser import RECORDS, TILES
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Feature, Kind, Schema

_TYPES = {Kind.INT64: int, Kind.FLOAT: float, Kind.BYTES: bytes}


def run(flags: argparse.Namespace) -> int:
    """Shows records, and returns the exit code."""
    _inspect(Terminal(), flags)
    return 0


def _inspect(terminal: Terminal, flags: argparse.Namespace) -> None:
    """Shows the requested records, or draws them.

    Raises UsageError if a file or record does not exist. Raises VerificationFailed if a record is
    damaged; the records before it are still shown.
    """
    for flag in ("n", "record"):
        if (value := getattr(flags, flag)) is not None and value < (flag == "n"):
            raise UsageError(f"{'-' if flag == 'n' else '--'}{flag} {value}: expected 0 or more")
    schema = load_schema(flags.schema) if flags.schema else None
    source = RecordSource.of(flags.paths)
    names = source.dataset.classes if source.dataset else {}
    declared = source.dataset.manifest.dataset_schema if source.dataset else None
    records, damage = _chosen(source, flags)
    if flags.sheet and records:
        write_contact_sheet(flags.sheet, records, names, schema or declared)
    if flags.json and not damage:
        say_json(_document(source, records, schema))
        return
    if flags.sheet and records:
        terminal.line(f"drew {flags.sheet}: {len(records)} records")
    elif records or not damage:
        _show(terminal, source, records, names, whole=_is_single(flags))
    if schema:
        _show_differences(terminal, records, schema)
    if damage:
        raise damage


def _document(
    source: RecordSource, records: Sequence[FoundRecord], schema: Schema | None
) -> dict[str, Any]:
    manifest = source.dataset.manifest if source.dataset else None
    document: dict[str, Any] = {
        **SHOWN,
        "directory": source.dataset.directory if source.dataset else None,
        "splits": {n: s.records for n, s in manifest.ordered_splits.items()} if manifest else None,
        "files": len(source.files),
        "records": [_record(record) for record in records],
    }
    if schema:
        found = Counter(text for record in records for text in _differences(record, schema))
        document["differences"] = dict(found)
    return document


def _record(record: FoundRecord) -> dict[str, Any]:
    features = (record.features or {}).items()
    return {
        "file": record.file,
        "record": record.number,
        "offset": record.offset,
        "key": record.key,
        "split": record.split,
        "features": {name: json_value(values) for name, values in features},
    }


def _is_single(flags: argparse.Namespace) -> bool:
    return flags.record is not None or flags.key is not None


def _chosen(
    source: RecordSource, flags: argparse.Namespace
) -> tuple[list[FoundRecord], VerificationFailed | None]:
    """Returns the records to show, and the damage that ended the reading, if any."""
    if flags.record is not None:
        return [source.by_number(flags.record)], None
    if flags.key is not None:
        return [source.by_key(flags.key)], None
    default = TILES if flags.sheet else RECORDS
    records: list[FoundRecord] = []
    try:
        for record in source.first(default if flags.n is None else flags.n):
            records.append(record)  # one by one, to keep the records before the damage
    except VerificationFailed as damage:
        return records, damage
    return records, None


def _show(
    terminal: Terminal,
    source: RecordSource,
    records: Sequence[FoundRecord],
    names: ClassNames,
    whole: bool,
) -> None:
    if whole:
        print_record(terminal, records[0], names)
        return
    terminal.line(_headline(source, records))
    if records:
        terminal.line()
        print_features(terminal, records)
        terminal.line()
        print_records(terminal, records, names)


def _headline(source: RecordSource, records: Sequence[FoundRecord]) -> str:
    number = len(source.files)
    files = "1 file" if number == 1 else f"{number:,} files"
    if source.dataset is None:
        return f"{files}, the first {len(records):,} records" if records else f"{files}, no records"
    manifest = source.dataset.manifest
    about = f"{manifest.name} {manifest.version}: {manifest.input.records:,} records in {files}"
    return f"{about}, schema {manifest.dataset_schema.name}"


def _show_differences(terminal: Terminal, records: Sequence[FoundRecord], schema: Schema) -> None:
    found = Counter(text for record in records for text in _differences(record, schema))
    for text, count in found.items():
        terminal.line(f"{text}: in {count} of {len(records)} records")
    if not found:
        terminal.line(f"all {len(records)} records fit schema {schema.name}")


def _differences(record: FoundRecord, schema: Schema) -> Iterator[str]:
    """Yields the mismatches between a record and a schema."""
    if record.features is None:
        yield "not a tf.train.Example"
        return
    for name, feature in schema.features.items():
        values, number = record.features.get(name), _values_of(feature)
        if values is None:
            yield f"{name!r} is missing"
        elif any(not isinstance(value, _TYPES[feature.kind]) for value in values):
            yield f"{name!r} is not of kind {feature.kind.value}"
        elif not feature.optional and number is not None and len(values) != number:
            yield f"{name!r} has {len(values)} values, expected {number}"
    if not schema.every_column:
        for name in sorted(record.features.keys() - schema.features.keys()):
            yield f"{name!r} is not in schema {schema.name}"


def _values_of(feature: Feature) -> int | None:
    """Returns the number of values that a record must have; None for any number."""
    if feature.per == "frame":
        return None
    sizes = feature.shape or ()
    return None if None in sizes else math.prod(size or 1 for size in sizes)
