"""Proves a published dataset again, from its own files and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import ValidationError

from schemas import layout
from schemas.config import Verify
from schemas.dataset_info import Problem, ShardAudit
from schemas.errors import ProofError, UsageError
from schemas.features import Schema
from schemas.manifest import Manifest, ShardEntry
from schemas.plan import ResolvedSchema
from transforms.audit import audit_shard
from transforms.build_examples import num_threads
from transforms.files import exists, files_below, open_binary
from transforms.locate import first_foreign_record
from transforms.shard_file import ShardFiles


def verify_dataset(directory: str, verify: Verify) -> tuple[Manifest, list[Problem]]:
    """Returns a dataset's manifest, and everything that is not as the manifest says.

    Args:
        directory: DIR/NAME/VERSION.
        verify: "parse" every record, or "decode" every image as well.

    Raises:
        ProofError: if no dataset is published there, or its manifest cannot be read.
    """
    manifest, seal_problems = _sealed_manifest(directory)
    expected: dict[ShardFiles, ShardEntry] = {
        ShardFiles(directory, split, index, shard.file, shard.index_file): shard
        for split, entry in manifest.splits.items()
        for index, shard in enumerate(entry.shards)
    }
    with ThreadPoolExecutor(num_threads()) as executor:
        checked = executor.map(
            lambda files: list(_check_shard(files, expected[files], manifest.resolved, verify)),
            expected,
        )
        shard_problems = [problem for problems in checked for problem in problems]
    return manifest, [
        *seal_problems,
        *_check_sidecars(directory, manifest),
        *_check_strays(directory, manifest),
        *_check_books(directory, manifest),
        *shard_problems,
    ]


def verify_files(paths: Sequence[str], schema: Schema, verify: Verify) -> tuple[int, list[Problem]]:
    """Returns how many records some TFRecord files hold, and what in them does not fit a schema."""
    if not schema.features:
        raise UsageError(f"--schema {schema.name}: has no features of its own to check records by")
    records, problems = 0, list[Problem]()
    for path in paths:
        folder, _, file = path.rpartition("/")
        try:
            audit = audit_shard(
                ShardFiles(folder or ".", "", 0, file, ""), ResolvedSchema(schema), verify
            )
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
        records += audit.records
        problems += audit.problems
    return records, problems


def read_manifest(directory: str) -> Manifest:
    """Returns the manifest of a published dataset.

    Raises:
        ProofError: if there is none.
    """
    return _sealed_manifest(directory)[0]


def _sealed_manifest(directory: str) -> tuple[Manifest, list[Problem]]:
    mark = layout.join(directory, layout.SUCCESS)
    if not exists(mark):
        raise ProofError(
            f"{directory}: no published dataset, it has no {layout.SUCCESS}; "
            "expected DIR/NAME/VERSION of one that recordmill convert has published"
        )
    path = layout.join(directory, layout.MANIFEST)
    if not exists(path):
        raise ProofError(f"{path}: is missing; convert anew, or restore it from a copy")
    data = _content(path)
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        raise ProofError(f"{path}: is no manifest: {error.errors()[0]['msg']}") from error
    if _content(mark).decode("ascii", "replace").strip() == hashlib.sha256(data).hexdigest():
        return manifest, []
    return manifest, [Problem(layout.MANIFEST, f"is not the one that {layout.SUCCESS} seals")]


def _check_sidecars(directory: str, manifest: Manifest) -> Iterator[Problem]:
    for name, digest in manifest.sidecars.items():
        path = layout.join(directory, name)
        if not exists(path):
            yield Problem(name, "is missing")
        elif hashlib.sha256(_content(path)).hexdigest() != digest:
            yield Problem(name, "is not the file that was published: its sha256 differs")


def _check_strays(directory: str, manifest: Manifest) -> Iterator[Problem]:
    """Yields files that a reader's pattern would take for shards, or for their indexes."""
    shards = [shard for entry in manifest.splits.values() for shard in entry.shards]
    known = {shard.file for shard in shards} | {shard.index_file for shard in shards}
    for pattern in (f"{manifest.name}-*.tfrecord*", f"{layout.RECORDS}/*"):
        for name in files_below(directory, pattern):
            if name not in known:
                yield Problem(name, "is no part of this dataset, but readers would find it")


def _check_books(directory: str, manifest: Manifest) -> Iterator[Problem]:
    books = manifest.input
    if books.rows != books.records + books.rejected + books.duplicates:
        yield Problem(layout.MANIFEST, "the rows do not add up")
    if books.records != sum(split.records for split in manifest.splits.values()):
        yield Problem(layout.MANIFEST, "the splits' records do not add up to all records")
    for name, split in manifest.splits.items():
        if split.rows != split.records + split.rejected + split.duplicates:
            yield Problem(layout.MANIFEST, f"the rows of split {name!r} do not add up")
        if split.records != sum(shard.records for shard in split.shards):
            yield Problem(layout.MANIFEST, f"the shards of split {name!r} do not add up")
    try:
        reasons = Counter(reject["reason"] for reject in read_rejects(directory))
    except (ValueError, LookupError, TypeError) as error:
        yield Problem(layout.REJECTS, f"holds a line that is no reject: {error}")
        return
    if dict(reasons) != books.reasons or reasons.total() != books.rejected:
        what = f"holds {dict(sorted(reasons.items()))}, the manifest {books.reasons}"
        yield Problem(layout.REJECTS, what)


def read_rejects(directory: str) -> Iterator[dict[str, str]]:
    """Yields every reject of a dataset.

    Raises:
        ValueError: at a line that is none.
    """
    for name in files_below(directory, f"{layout.REJECTS}/rejects-*.jsonl"):
        for line in _content(layout.join(directory, name)).splitlines():
            yield json.loads(line)


def _check_shard(
    files: ShardFiles, expected: ShardEntry, resolved: ResolvedSchema, verify: Verify
) -> Iterator[Problem]:
    for name in (files.file, files.records):
        if not exists(layout.join(files.directory, name)):
            yield Problem(name, "is missing")
            return
    audit = audit_shard(files, resolved, verify)
    if audit.index_sha256 != expected.index_sha256:
        yield Problem(files.records, "is not the file that was published: its sha256 differs")
    if audit.sha256 != expected.sha256:
        broken = [problem for problem in audit.problems if problem.file == files.file]
        yield from broken or [first_foreign_record(files, resolved)]
    elif audit.index_sha256 == expected.index_sha256:
        yield from audit.problems or _other_counts(audit, expected)


def _other_counts(audit: ShardAudit, expected: ShardEntry) -> Iterator[Problem]:
    found = (audit.records, audit.size, audit.payload, audit.classes, audit.crc32c)
    published = (
        expected.records,
        expected.bytes,
        expected.payload,
        expected.classes,
        expected.crc32c,
    )
    if found != published:
        yield Problem(layout.MANIFEST, f"tells other counts of {audit.file} than the file itself")


def _content(path: str) -> bytes:
    with open_binary(path) as stream:
        return stream.read()
