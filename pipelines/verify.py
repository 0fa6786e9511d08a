"""Proves a published dataset again, from its own files and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pipelines.published import in_place, read_file, sealed_manifest
from schemas import layout
from schemas.config import Verify
from schemas.dataset_info import Problem, ShardAudit
from schemas.errors import UsageError
from schemas.features import Schema
from schemas.manifest import Manifest, ShardEntry
from schemas.plan import ResolvedSchema
from transforms import audit_apart
from transforms.compare_contents import shard_tally
from transforms.cores import num_cores
from transforms.files import exists, files_below, open_binary
from transforms.functional.books import wrong_sums
from transforms.functional.content import Tally, by_bucket, content_of, merge, merge_contents
from transforms.locate import first_foreign_record
from transforms.shard_file import ShardFiles
from transforms.write_lines import line_digest, lines_of

_PASS_RECORDS = 2**20


def verify_dataset(directory: str, verify: Verify) -> tuple[Manifest, list[Problem]]:
    """Returns a dataset's manifest, and everything that is not as the manifest says.

    Args:
        directory: DIR/NAME/VERSION.
        verify: "parse" every record, or "decode" every image as well.

    Raises:
        ProofError: if no dataset is published there, or its manifest cannot be read.
    """
    directory = in_place(directory)
    manifest, seal_problems = _sealed_manifest(directory)
    expected: dict[ShardFiles, ShardEntry] = {
        ShardFiles(directory, split, index, shard.file, shard.index_file): shard
        for split, entry in manifest.splits.items()
        for index, shard in enumerate(entry.shards)
    }
    with ThreadPoolExecutor(num_cores()) as executor:
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
        *([] if shard_problems else _check_content(directory, manifest)),
    ]


def verify_files(paths: Sequence[str], schema: Schema, verify: Verify) -> tuple[int, list[Problem]]:
    """Returns how many records some TFRecord files hold, and what in them does not fit a schema."""
    if not schema.features:
        raise UsageError(f"--schema {schema.name}: has no features of its own to check records by")
    records, problems = 0, list[Problem]()
    for path in paths:
        folder, _, file = path.rpartition("/")
        try:
            audit = audit_apart.audit(
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
    manifest, sealed = sealed_manifest(directory, read_file)
    if sealed:
        return manifest, []
    return manifest, [Problem(layout.MANIFEST, f"is not the one that {layout.SUCCESS} seals")]


def _check_sidecars(directory: str, manifest: Manifest) -> Iterator[Problem]:
    for name, digest in manifest.sidecars.items():
        path = layout.join(directory, name)
        if not exists(path):
            yield Problem(name, "is missing")
            continue
        try:
            content = _content(path)
        except OSError as error:  # a manifest that was changed may name a folder
            yield Problem(name, f"cannot be read: {error.strerror or error}")
            continue
        if hashlib.sha256(content).hexdigest() != digest:
            yield Problem(name, "is not the file that was published: its sha256 differs")


def _check_strays(directory: str, manifest: Manifest) -> Iterator[Problem]:
    """Yields files that a reader's pattern would take for shards, or for their indexes."""
    shards = [shard for entry in manifest.splits.values() for shard in entry.shards]
    known = {shard.file for shard in shards} | {shard.index_file for shard in shards}
    known |= manifest.sidecars.keys()
    folders = (layout.RECORDS, layout.INDEXES)
    for pattern in (f"{manifest.name}-*.tfrecord*", *(f"{folder}/*" for folder in folders)):
        for name in files_below(directory, pattern):
            if name not in known:
                yield Problem(name, "is no part of this dataset, but readers would find it")


def _check_books(directory: str, manifest: Manifest) -> Iterator[Problem]:
    for what in wrong_sums(manifest):
        yield Problem(layout.MANIFEST, what)
    yield from _check_rejects(directory, manifest)
    yield from _check_dropped(directory, manifest)
    for folder, digest in manifest.lines.items():
        if line_digest(directory, folder) != digest:
            yield Problem(folder, "does not hold the lines that were published")


def _check_rejects(directory: str, manifest: Manifest) -> Iterator[Problem]:
    books = manifest.input
    try:
        reasons = Counter(reject["reason"] for reject in read_rejects(directory))
    except (ValueError, LookupError, TypeError) as error:
        yield Problem(layout.REJECTS, f"holds a line that is no reject: {error}")
        return
    if dict(reasons) != books.reasons or reasons.total() != books.rejected:
        what = f"holds {dict(sorted(reasons.items()))}, the manifest {books.reasons}"
        yield Problem(layout.REJECTS, what)


def _check_dropped(directory: str, manifest: Manifest) -> Iterator[Problem]:
    rows = conflicts = 0
    images = set[str]()
    try:
        for line in lines_of(directory, layout.DROPPED):
            row, rows = json.loads(line), rows + 1
            if "label" in row:
                conflicts += 1
                images.add(row["repeats"])
    except (ValueError, LookupError, TypeError) as error:
        yield Problem(layout.DROPPED, f"holds a line that is no dropped row: {error}")
        return
    told = manifest.content.dropped_conflicts
    found, expected = (
        (rows, conflicts, len(images)),
        (manifest.input.duplicates, told.records, told.images),
    )
    if found != expected:
        what = "{} rows, {} of them of another label than their image's, of {} images"
        told_so = f"holds {what.format(*found)}; the manifest tells {what.format(*expected)}"
        yield Problem(layout.DROPPED, told_so)


def _check_content(directory: str, manifest: Manifest) -> Iterator[Problem]:
    """Compares all images anew; their digests are those of the indexes, which were checked."""
    shards = [
        (s, shard.index_file) for s, entry in manifest.splits.items() for shard in entry.shards
    ]
    passes = 1 + manifest.input.records // _PASS_RECORDS
    contents = []
    for number in range(passes):  # so that memory is bounded, however many images there are
        total: Tally = {}
        for split, name in shards:
            tally = shard_tally(layout.join(directory, name), split)
            merge(total, by_bucket(tally, passes).get(number, {}))
        contents.append(content_of(total))
    found = merge_contents(contents)
    told = manifest.content.model_copy(update={"dropped_conflicts": found.dropped_conflicts})
    if found != told:
        yield Problem(layout.MANIFEST, "does not tell which images are repeated as they are")


def read_rejects(directory: str) -> Iterator[dict[str, str]]:
    """Yields every reject of a dataset.

    Raises:
        ValueError: at a line that is none.
    """
    for line in lines_of(directory, layout.REJECTS):
        yield json.loads(line)


def _check_shard(
    files: ShardFiles, expected: ShardEntry, resolved: ResolvedSchema, verify: Verify
) -> Iterator[Problem]:
    for name in (files.file, files.records):
        if not exists(layout.join(files.directory, name)):
            yield Problem(name, "is missing")
            return
    audit = audit_apart.audit(files, resolved, verify)
    if audit.index_sha256 != expected.index_sha256:
        yield Problem(files.records, "is not the file that was published: its sha256 differs")
    if audit.sha256 != expected.sha256:
        broken = [problem for problem in audit.problems if problem.file == files.file]
        yield from broken or [first_foreign_record(files, resolved)]
    elif audit.index_sha256 == expected.index_sha256:
        yield from audit.problems or _other_counts(audit, expected)


def _other_counts(audit: ShardAudit, expected: ShardEntry) -> Iterator[Problem]:
    found = (audit.records, audit.frames, audit.size, audit.payload, audit.classes, audit.crc32c)
    published = (
        expected.records,
        expected.frames,
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
