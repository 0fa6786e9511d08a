"""Verifies a published dataset again, from its own files and nothing else."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.find_duplicates import shard_tally
from recordmill.transforms.functional.duplicates import (
    Tally,
    duplicate_stats,
    merge,
    merge_duplicate_stats,
    split_by_bucket,
)
from recordmill.transforms.storage.dataset import Dataset, current_folder, read_lines
from recordmill.transforms.storage.files import all_files_below
from recordmill.transforms.storage.shard_files import ShardFiles, open_stored
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.verification.verify_shard import first_foreign_record
from recordmill.transforms.workers.cores import num_cores
from recordmill.transforms.write_lines import digest_of_lines

_PASS_RECORDS = 2**20
_NOT_LINES = (ValueError, LookupError, TypeError, RecursionError)
"""What lines raise that are not those of a run."""


def verify_dataset(directory: str, verify: Verify) -> tuple[Manifest, list[Problem]]:
    """Returns a dataset's manifest, and everything that is not as the manifest says.

    Args:
        directory: DIR/NAME/VERSION.
        verify: "parse" every record, or "decode" every image as well.

    Raises:
        ProofError: if no dataset is published there, or its manifest cannot be read.
    """
    dataset = Dataset.open_unchecked(current_folder(directory))
    directory, manifest = dataset.directory, dataset.manifest
    expected: dict[ShardFiles, ShardEntry] = {
        ShardFiles(directory, split, index, shard.file, shard.index_file): shard
        for (split, index), shard in dataset.shards().items()
    }
    with ThreadPoolExecutor(num_cores()) as executor:
        checked = executor.map(
            lambda files: list(_check_shard(files, expected[files], manifest.resolved, verify)),
            expected,
        )
        shard_problems = [problem for problems in checked for problem in problems]
    return manifest, [
        *shard_problems,  # first, as they name records
        *_check_sidecars(dataset),
        *_check_lines(dataset),
        *_check_foreign(dataset),
        *_check_manifest(dataset),
        *([] if shard_problems else _check_content(dataset)),
    ]


def verify_files(paths: Sequence[str], schema: Schema, verify: Verify) -> tuple[int, list[Problem]]:
    """Returns how many records some TFRecord files hold, and what in them does not fit a schema."""
    if not schema.features:
        raise UsageError(f"--schema {schema.name}: has no features of its own to check records by")
    records, problems = 0, list[Problem]()
    for path in paths:
        folder, _, file = path.rpartition("/")
        try:
            audit = verifier_process.audit(
                ShardFiles(folder or ".", "", 0, file, ""), ResolvedSchema(schema), verify
            )
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
        records += audit.entry.records
        problems += audit.problems
    return records, problems


def _check_manifest(dataset: Dataset) -> Iterator[Problem]:
    if not dataset.is_committed:
        yield Problem(layout.MANIFEST, f"does not match the checksum in {layout.SUCCESS}")
        return
    for what in dataset.manifest.count_mismatches():
        yield Problem(layout.MANIFEST, f"row counts do not match: {what}")


def _check_sidecars(dataset: Dataset) -> Iterator[Problem]:
    for name, digest in dataset.manifest.sidecars.items():
        try:
            with open_stored(dataset.path(name)) as stream:
                content = stream.read()
        except OSError as error:
            yield _unreadable(name, error)
            continue
        if hashlib.sha256(content).hexdigest() != digest:
            yield Problem(name, "is not the file that was published: its sha256 differs")


def _check_foreign(dataset: Dataset) -> Iterator[Problem]:
    """Yields the files that are not part of the dataset: some reader may find each of them."""
    try:
        names = all_files_below(dataset.directory)
    except OSError as error:
        yield _unreadable(dataset.directory, error)
        return
    known = dataset.manifest.files
    for name in names:
        if name not in known:
            yield Problem(name, "is no part of this dataset; delete it, or move it away")


def _unreadable(name: str, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem(name, "is missing")
    return Problem(name, f"cannot be read: {error.strerror or error}")


def _check_lines(dataset: Dataset) -> Iterator[Problem]:
    """Yields what is wrong with rejects and dropped rows: their counts, else their digest."""
    checks = {layout.REJECTS: _check_rejects, layout.DROPPED: _check_dropped}
    for folder, check in checks.items():
        try:
            problems = list(check(dataset))
            digest = dataset.manifest.lines.get(folder)
            lines = read_lines(dataset.directory, folder)
            if digest and not problems and digest_of_lines(lines) != digest:
                problems = [Problem(folder, "does not hold the lines that were published")]
        except OSError as error:
            problems = [_unreadable(folder, error)]
        yield from problems


def _check_rejects(dataset: Dataset) -> Iterator[Problem]:
    counts = dataset.manifest.input
    try:
        reasons = Counter(reject["reason"] for reject in dataset.rejects())
    except _NOT_LINES as error:
        yield Problem(layout.REJECTS, f"holds a line that is no reject: {error}")
        return
    if dict(reasons) != counts.reasons or reasons.total() != counts.rejected:
        what = f"holds {dict(sorted(reasons.items()))}, the manifest {counts.reasons}"
        yield Problem(layout.REJECTS, what)


def _check_dropped(dataset: Dataset) -> Iterator[Problem]:
    manifest, rows, conflicts = dataset.manifest, 0, 0
    images = set[str]()
    try:
        for row in dataset.dropped():
            rows += 1
            if "label" in row:
                conflicts += 1
                images.add(row["repeats"])
    except _NOT_LINES as error:
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


def _check_content(dataset: Dataset) -> Iterator[Problem]:
    """Compares all images again; their digests are those of the indexes, which were checked."""
    shards = dataset.shards()
    passes = 1 + sum(shard.records for shard in shards.values()) // _PASS_RECORDS
    contents = []
    for number in range(passes):  # so that memory is bounded, however many images there are
        total: Tally = {}
        for (split, _), shard in shards.items():
            tally = shard_tally(dataset.path(shard.index_file), split)
            merge(total, split_by_bucket(tally, passes).get(number, {}))
        contents.append(duplicate_stats(total))
    found = merge_duplicate_stats(contents)
    told = dataset.manifest.content.model_copy(
        update={"dropped_conflicts": found.dropped_conflicts}
    )
    if found != told:
        yield Problem(layout.MANIFEST, "does not tell which images are repeated as they are")


def _check_shard(
    files: ShardFiles, expected: ShardEntry, resolved: ResolvedSchema, verify: Verify
) -> Iterator[Problem]:
    for name in (files.file, files.records):
        try:
            open_stored(layout.join(files.directory, name)).close()
        except OSError as error:
            yield _unreadable(name, error)
            return
    try:
        audit = verifier_process.audit(files, resolved, verify)
    except OSError as error:  # it can be opened, and not be read
        yield _unreadable(files.file, error)
        return
    found = audit.entry
    if found.index_sha256 != expected.index_sha256:
        yield Problem(files.records, "is not the file that was published: its sha256 differs")
    if found.sha256 != expected.sha256:
        broken = [problem for problem in audit.problems if problem.file == files.file]
        yield from broken or [first_foreign_record(files, resolved)]
    elif found.index_sha256 == expected.index_sha256:
        yield from audit.problems
        if not audit.problems and found != expected.model_copy(update={"images": {}}):
            what = f"states other counts of {files.file} than the file itself"
            yield Problem(layout.MANIFEST, what)
