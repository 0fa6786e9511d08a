"""`recordmill forget`: makes a version of a dataset without some of its records."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Collection
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa

from recordmill.pipelines import forget
from recordmill.pipelines.console.terminal import finish, say, warn
from recordmill.pipelines.engines.beam_patches import apply
from recordmill.pipelines.engines.runners import waits_for_result
from recordmill.pipelines.forget import Holder, SimilarRecord
from recordmill.pipelines.options import beam_options
from recordmill.pipelines.run.run_record import PUBLISHED
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import counted
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.sources.parquet import read_table
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.stores.beam import use_pipeline_options

_SHOWN = 5


def run(flags: argparse.Namespace) -> int:
    """Removes records, and lists or deletes the versions that still have them."""
    apply()
    beam = beam_options(flags.rest)
    if not waits_for_result(beam):
        raise UsageError(
            "--no_wait_until_finish: forget waits for its job, to list the versions that still "
            "have the records. Remove the flag."
        )
    use_pipeline_options(beam)
    done = forget.forget(
        flags.directory,
        _read_keys(flags.keys, flags.column),
        beam,
        version=flags.version,
        allow_missing=flags.allow_missing,
        interrupt=flags.interrupt,
        command=("recordmill", *flags.typed),
    )
    if not flags.json:
        _show_version(done)
    for line in (*done.warnings, *_similar_lines(done.similar)):
        warn(f"warning: {line}")
    purged = forget.purge(done) if flags.purge else None
    for path, inode, number in done.links:
        warn(
            f"warning: {path}: has {counted(number, 'hard link')} outside of this dataset. "
            f"Find them with find DIR -xdev -inum {inode}"
        )
    problems = purged.problems if purged else done.problems
    state = PUBLISHED if done.removed else "skipped"
    show = partial(_show_holders, done, purged)
    return finish(flags.json, _document(done, purged), show, *problems, state=state)


def _show_version(done: forget.Forgotten) -> None:
    if done.removed:
        text = f"removed {counted(done.removed, 'record')} from {done.source}"
        say(f"{text}; published {done.directory} ({counted(done.records, 'record')})")
        say(f"certificate: {done.certificate}")
    else:
        say(f"nothing to remove: {done.source} has no record with these keys")


def _show_holders(done: forget.Forgotten, purge: forget.Purge | None) -> None:
    deleted = purge or forget.Purge()
    for holder in done.holders:
        what = "deleted" if holder in deleted.holders else "still has them"
        say(f"{what}: {holder.version.directory} ({holder.records:,} of these records)")
    for version in done.unfinished:
        kind = "deleted" if version in deleted.unfinished else "may have them"
        say(f"{kind}: files of an unfinished run of {done.folder}/{version}")
    if (done.holders or done.unfinished) and not purge:
        say(f"Delete these {'versions' if done.holders else 'files'} with --purge.")


def _document(done: forget.Forgotten, purge: forget.Purge | None) -> dict[str, Any]:
    certificate = {"certificate": done.certificate} if done.removed else {}
    purged = {"purged": list(map(_holder, purge.holders))} if purge else {}
    left = [holder for holder in done.holders if not purge or holder not in purge.holders]
    return {
        "directory": done.directory,
        "removed": done.removed,
        **certificate,
        "similar": [asdict(record) for record in done.similar],
        **purged,
        "holders": list(map(_holder, left)),
        "unfinished": list(done.unfinished),
    }


def _similar_lines(similar: Collection[SimilarRecord]) -> list[str]:
    lines = dict.fromkeys(  # a record can have several of the images
        f"{one.key} ({one.split}) remains with "
        + ("the same image" if one.is_same else f"a similar image ({one.distance} of 256 bits)")
        for one in similar
    )
    more = len(lines) - _SHOWN
    return [*lines][:_SHOWN] + [f"and {more:,} more; --json lists all"] * (more > 0)


def _holder(holder: Holder) -> dict[str, Any]:
    links = [
        {"file": path, "inode": inode, "links": number} for path, inode, number in holder.links
    ]
    manifest = holder.version.manifest
    return {
        "version": manifest.version,
        "directory": holder.version.directory,
        "records": holder.records,
        "links_elsewhere": links,
    }


def _read_keys(path: str, column: str | None) -> frozenset[str]:
    """Reads keys from a text file with one per line, or from a column of a Parquet or CSV table."""
    try:
        data = read_bytes(path)
        keys = _lines(data) if column is None else _column(data, column)
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not valid UTF-8"
        remedy = "Write one key per line, or set --column if it is a table."
        raise UsageError(f"--keys {path}: {what}. {remedy}") from error
    except (KeyError, pa.ArrowException) as error:
        raise UsageError(f"--keys {path}: has no column {column!r}: {error}") from error
    except RecordError as error:
        remedy = "Pass a text file or a table with the keys."
        raise UsageError(f"--keys {error.detail}. {remedy}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"--keys {path}: cannot be read: {error}") from error
    if not keys:
        raise UsageError(f"--keys {path}: has no keys; expected one per line. Add some.")
    return keys


def _lines(data: bytes) -> frozenset[str]:
    # Only line feeds end a line: a key may have any other character.
    lines = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    return frozenset(line for line in lines if line)


def _column(data: bytes, column: str) -> frozenset[str]:
    if data[:4] == b"PAR1":
        values = read_table(data, [column])[column].to_pylist()
        return frozenset(str(value) for value in values if value is not None)
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    if column not in (rows.fieldnames or ()):
        raise KeyError(f"expected one of {', '.join(rows.fieldnames or ())}")
    return frozenset(row[column] for row in rows if row[column])
