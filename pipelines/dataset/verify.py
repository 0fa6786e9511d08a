"""Verifies a published dataset from its own files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem, ShardVerification
from recordmill.schemas.document import first_fault
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import Removal
from recordmill.schemas.statistics import DuplicateStats
from recordmill.transforms.duplicates import shard_tally
from recordmill.transforms.functional import duplicates
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.reconcile_counts import digest_of_lines
from recordmill.transforms.storage.dataset import DatasetFolder, read_lines
from recordmill.transforms.storage.files import all_files_below, open_binary, read
from recordmill.transforms.storage.published import current_folder, newest_version, read_file
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process, verify_shard
from recordmill.transforms.workers.process import num_cores

# Maximum number of digests in memory while images are compared.
_PASS_RECORDS = 2**20

# Errors raised by lines that recordmill did not write.
_INVALID_LINES = (ValueError, LookupError, TypeError, RecursionError)


def verify_dataset(directory: str, verify: Verify) -> tuple[DatasetFolder, list[Problem]]:
    """Compares all files of a dataset with its manifest.

    Returns the dataset, and the problems found. Raises VerificationFailed if no dataset is
    published there, or its manifest cannot be read.
    """
    dataset = DatasetFolder.open_unchecked(newest_version(current_folder(directory)))
    directory, manifest = dataset.directory, dataset.manifest
    resolved = manifest.resolved

    classes: dict[str, dict[str, Counter[int]]] = {split: {} for split in manifest.splits}

    def check(item: tuple[tuple[str, int], ShardEntry]) -> tuple[str, _Checked]:
        (split, index), shard = item
        files = ShardFiles(directory, split, index, shard.file, shard.index_file)
        return split, _check_shard(files, shard, resolved, verify)

    shard_problems = list[Problem]()
    for split, (problems, found) in map_in_threads(check, dataset.shards().items(), num_cores()):
        shard_problems += problems
        for feature, counts in found.items():
            classes[split].setdefault(feature, Counter()).update(counts)
    return dataset, [
        *shard_problems,  # first, because they locate single records
        *_check_sidecars(dataset),
        *_check_lines(dataset),
        *_check_extra_files(dataset),
        *_check_manifest(dataset),
        *([] if shard_problems else _check_classes(dataset, classes)),
        *([] if shard_problems else _check_duplicates(dataset)),
        *([] if shard_problems else _check_certificate(dataset)),
    ]


def _check_manifest(dataset: DatasetFolder) -> Iterator[Problem]:
    if not dataset.is_committed:
        yield Problem(layout.MANIFEST, f"does not match the checksum in {layout.SUCCESS}")
        return
    for mismatch in dataset.manifest.count_mismatches():
        yield Problem(layout.MANIFEST, f"row counts do not match: {mismatch}")


def _check_sidecars(dataset: DatasetFolder) -> Iterator[Problem]:
    for name, digest in dataset.manifest.sidecars.items():
        try:
            content = read(dataset.path(name))
        except OSError as error:
            yield _unreadable(name, error)
            continue
        if hashlib.sha256(content).hexdigest() != digest:
            yield Problem(name, "is not the published file: its sha256 differs")


def _check_extra_files(dataset: DatasetFolder) -> Iterator[Problem]:
    """Yields the files that are not part of the dataset, as readers may pick them up."""
    try:
        names = all_files_below(dataset.directory)
    except OSError as error:
        yield _unreadable(dataset.directory, error)
        return
    known = dataset.manifest.files
    for name in names:
        if name not in known:
            yield Problem(name, "is not part of this dataset. Delete it, or move it elsewhere.")


def _unreadable(name: str, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem(name, "is missing")
    return Problem(name, f"cannot be read: {error.strerror or error}")


def _check_lines(dataset: DatasetFolder) -> Iterator[Problem]:
    """Yields the problems of the lists of rejects and dropped rows: wrong counts or digests."""
    checks = {layout.REJECTS: _check_rejects, layout.DROPPED: _check_dropped}
    for folder in (*checks, *(dataset.manifest.lines.keys() & {*layout.UNMATCHED})):
        try:
            problems = list(checks[folder](dataset)) if folder in checks else []
            digest = dataset.manifest.lines.get(folder)
            # Only the list of rejects exists even if it is empty.
            if folder == layout.REJECTS or digest not in (None, digest_of_lines(())):
                open_binary(dataset.path(layout.lines_name(folder))).close()
            lines = read_lines(dataset.directory, folder)
            if digest and not problems and digest_of_lines(lines) != digest:
                problems = [Problem(folder, "does not contain the published lines")]
        except OSError as error:
            problems = [_unreadable(folder, error)]
        yield from problems


def _check_rejects(dataset: DatasetFolder) -> Iterator[Problem]:
    counts = dataset.manifest.input
    try:
        reasons = Counter(reject["reason"] for reject in dataset.rejects())
    except _INVALID_LINES as error:
        yield Problem(layout.REJECTS, f"contains a line that is not a reject: {error}")
        return
    if dict(reasons) != counts.reasons or reasons.total() != counts.rejected:
        actual = dict(sorted(reasons.items()))
        yield Problem(layout.REJECTS, f"expected {counts.reasons} (manifest), got {actual}")


def _check_dropped(dataset: DatasetFolder) -> Iterator[Problem]:
    manifest, rows, conflicts = dataset.manifest, 0, 0
    images = set[tuple[str, str]]()
    try:
        for row in dataset.dropped():
            rows += 1
            if "label" in row:
                conflicts += 1
                # The key of the row that was kept for this image, or for these similar ones.
                images.add((row["repeats"], row.get("reason", "")))
    except _INVALID_LINES as error:
        yield Problem(layout.DROPPED, f"contains a line that is not a dropped row: {error}")
        return
    in_manifest = manifest.content.dropped_conflicts
    found = (rows, conflicts, len(images))
    expected = (manifest.input.duplicates, in_manifest.records, in_manifest.images)
    if found != expected:
        counts = "{} rows, {} of them with a conflicting label, of {} images"
        problem = f"expected {counts.format(*expected)} (manifest), got {counts.format(*found)}"
        yield Problem(layout.DROPPED, problem)


def _check_duplicates(dataset: DatasetFolder) -> Iterator[Problem]:
    """Recomputes the duplicate statistics from the verified indexes."""
    shards = dataset.shards()
    # Like the conversion, images are compared by buckets of digests: here one bucket per pass over
    # the indexes, which bounds memory.
    passes = 1 + sum(shard.records for shard in shards.values()) // _PASS_RECORDS
    contents = []
    for number in range(passes):
        total: duplicates.Tally = {}
        for (split, index), shard in shards.items():
            tally = shard_tally(dataset.path(shard.index_file), split, index)
            duplicates.merge(total, duplicates.split_by_bucket(tally, passes).get(number, {}))
        contents.append(duplicates.duplicate_stats(total))
    found = DuplicateStats.sum_of(contents)
    expected = dataset.manifest.content.model_copy(
        update={"dropped_conflicts": found.dropped_conflicts, "groups": found.groups}
    )
    if found != expected:
        yield Problem(layout.MANIFEST, "duplicate statistics do not match the records")


# The problems of a shard, and the number of its labels by feature and class id.
_Checked = tuple[list[Problem], Mapping[str, Mapping[int, int]]]


def _check_classes(
    dataset: DatasetFolder, found: Mapping[str, Mapping[str, Mapping[int, int]]]
) -> Iterator[Problem]:
    for split, entry in dataset.splits.items():
        if found[split] != entry.classes:
            what = f"split {split!r}: class counts do not match the records"
            yield Problem(layout.MANIFEST, what)


def _check_shard(
    files: ShardFiles, expected: ShardEntry, resolved: ResolvedSchema, verify: Verify
) -> _Checked:
    for name in (files.file, files.records):
        try:
            open_binary(layout.join(files.directory, name)).close()
        except OSError as error:
            return [_unreadable(name, error)], {}
    try:
        verification = verifier_process.verify(files, resolved, verify)
    except OSError as error:  # the file can be opened, but not read
        return [_unreadable(files.file, error)], {}
    return list(_compare_shard(files, expected, verification, resolved)), verification.classes


def _compare_shard(
    files: ShardFiles,
    expected: ShardEntry,
    verification: ShardVerification,
    resolved: ResolvedSchema,
) -> Iterator[Problem]:
    found = verification.entry
    if found.index_sha256 != expected.index_sha256:
        yield Problem(files.records, "is not the published file: its sha256 differs")
    # A wrong checksum is reported with the record that causes it, if it can be located.
    if found.sha256 != expected.sha256:
        located = [problem for problem in verification.problems if problem.file == files.file]
        yield from located or [verify_shard.first_mismatched_record(files, resolved)]
    elif found.index_sha256 == expected.index_sha256:
        yield from verification.problems
        # Verification cannot count treatments of images, such as "transcoded".
        stated = expected.model_copy(update={"images": {}})
        if not expected.not_finite:  # datasets of earlier releases do not state them
            found = found.model_copy(update={"not_finite": {}})
        if not verification.problems and found != stated:
            yield Problem(layout.MANIFEST, f"counts of {files.file} do not match the file")


def _check_certificate(dataset: DatasetFolder) -> Iterator[Problem]:
    """Yields the problems of removal.json, and the records that remain; none without such a file.

    Reads all records, and computes the digests of their images.
    """
    if layout.REMOVAL not in dataset.manifest.sidecars:
        return
    data = read_file(dataset.path(layout.REMOVAL))
    if data is None:
        return  # reported with the other files
    try:
        removal = Removal.model_validate_json(data)
    except ValidationError as error:
        yield Problem(layout.REMOVAL, f"is not a certificate: {first_fault(error)}")
        return
    yield from removal.false_statements(dataset.manifest)
    removed = verify_shard.Removed.of(removal, dataset.manifest.resolved)
    check = partial(verify_shard.find_removed, dataset.directory, removed=removed)
    for problems in map_in_threads(check, dataset.shards().values(), num_cores()):
        yield from problems
