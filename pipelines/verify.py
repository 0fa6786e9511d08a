"""Proves a published dataset again, from its own files and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from apache_beam.io.filesystems import FileSystems
from pydantic import ValidationError

from schemas import layout
from schemas.dataset_info import Problem, ShardAudit
from schemas.errors import ProofError, UsageError
from schemas.features import Schema
from schemas.manifest import Manifest, ShardEntry
from schemas.plan import ResolvedSchema
from transforms.audit import ShardFiles, Verify, audit_shard, first_foreign_record
from transforms.build_examples import num_threads
from transforms.files import exists, open_binary


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
        for found in FileSystems.match([layout.join(directory, pattern)])[0].metadata_list:
            name = found.path[len(directory.rstrip("/")) + 1 :]
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
    rejects = sum(1 for _ in read_rejects(directory))
    if rejects != books.rejected:
        yield Problem(layout.REJECTS, f"holds {rejects} rejects, the manifest {books.rejected}")


def read_rejects(directory: str) -> Iterator[dict[str, str]]:
    """Yields every reject of a dataset."""
    pattern = layout.join(directory, layout.REJECTS, "rejects-*.jsonl")
    for found in FileSystems.match([pattern])[0].metadata_list:
        for line in _content(found.path).splitlines():
            yield json.loads(line)


def _check_shard(
    files: ShardFiles, expected: ShardEntry, resolved: ResolvedSchema, verify: Verify
) -> Iterator[Problem]:
    for name in (files.file, files.records):
        if not exists(layout.join(files.directory, name)):
            yield Problem(name, "is missing")
            return
    audit = audit_shard(files, resolved, verify)
    yield from audit.problems
    if audit.problems:
        return  # what differs follows from what is broken
    yield from _differences(files, audit, expected, resolved)


def _differences(
    files: ShardFiles, audit: ShardAudit, expected: ShardEntry, resolved: ResolvedSchema
) -> Iterator[Problem]:
    if audit.index_sha256 != expected.index_sha256:
        yield Problem(files.records, "is not the file that was published: its sha256 differs")
    found = (audit.records, audit.size, audit.payload, audit.classes, audit.crc32c)
    published = (
        expected.records,
        expected.bytes,
        expected.payload,
        expected.classes,
        expected.crc32c,
    )
    if audit.sha256 != expected.sha256:
        record, offset = first_foreign_record(files, resolved)
        what = "is not the shard that was published: its sha256 differs"
        yield Problem(files.file, what, record, offset)
    elif found != published:
        yield Problem(layout.MANIFEST, f"tells other counts of {files.file} than the file itself")


def _content(path: str) -> bytes:
    with open_binary(path) as stream:
        return stream.read()
