"""Verifies anything that holds TFRecords: published datasets, and files of any origin."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from recordmill.pipelines.dataset.dataset import Dataset
from recordmill.pipelines.record_files import RecordSet, Split, record_sets, sets_of
from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import counted, first_lines
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.storage import published
from recordmill.transforms.storage.files import file_size
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.verification.verify_file import (
    FeaturesSeen,
    Seen,
    VerifiedFile,
    add_features,
    check_new,
    salvage_files,
    verify_file,
)
from recordmill.transforms.workers.process import num_cores

# Problems in the message of an error; all that are described are in `Verification.problems`.
_SHOWN = 100

_SALVAGE = "Copy the damaged files again; --salvage DIR writes their intact records to new ones."

_KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}

# TFDS states the bytes of the serialized examples, or those of the files; each with 16 bytes of
# framing per record or without, by its version.
_FRAMING = 16


@dataclass
class Verification:
    """What was verified, and what was found.

    Attributes:
        paths: the folders of published datasets, with their versions, and other paths as given.
        files: number of TFRecord files.
        records: number of intact records.
        features: the kind of each feature: "bytes", "float" or "int64"; "" if it is always empty.
        problems: damaged records, missing files and what contradicts metadata; at most 1,000 of a
            file.
        num_problems: number of all problems.
        warnings: what may be intended, such as features that only some records have.
        damaged: the files with damaged records.
        salvaged: the numbers of intact records that were written to other files, by path.
        dataset: the published dataset; None if there is none, or several were verified.
    """

    paths: list[str] = field(default_factory=list)
    files: int = 0
    records: int = 0
    features: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    num_problems: int = 0
    warnings: list[Problem] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    salvaged: dict[str, int] = field(default_factory=dict)
    dataset: Dataset | None = None

    def check(self) -> None:
        """Raises VerificationFailed, with this verification as `verification`, if it failed."""
        if self.num_problems:
            shown = first_lines(list(map(str, self.problems)), _SHOWN, self.num_problems)
            if self.damaged and self.records and not self.salvaged:
                shown += f"\n{_SALVAGE}"
            error = VerificationFailed(f"{' '.join(self.paths)}: verification failed:{shown}")
            error.verification = self
            raise error

    def add(self, problems: Sequence[Problem], count: int | None = None) -> None:
        """Adds problems, of `count` that there are."""
        self.problems += problems
        self.num_problems += len(problems) if count is None else count


def verify(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    level: Verify = "parse",
    *,
    check: bool = True,
    salvage: str | os.PathLike[str] | None = None,
) -> Verification:
    """Verifies a published dataset, a folder of TensorFlow Datasets, or any TFRecord files.

    A published dataset is compared with its manifest, and TensorFlow parses every record. Of other
    files, every record is read: its checksums, and whether it is a `tf.train.Example` or
    `SequenceExample` with features of the same kinds as the others. Sets of shards have to be
    complete, and numbers of records those in `dataset_info.json`.

    Args:
        path: a folder, file or pattern, or several of them; on this machine or in an object store.
            Of a published dataset, DIR/NAME/VERSION, or DIR/NAME for its newest version.
        level: "parse" to parse every record, "decode" to decode every image as well; of files that
            are not in a published dataset, every value that begins like an image.
        check: whether to raise an error if there are problems.
        salvage: a new folder, to which the intact records of damaged files are written: to one file
            each, uncompressed. `lost.jsonl` in it lists the damage. None to write nothing.

    Returns:
        The counts, problems and warnings.

    Raises:
        UsageError: if the folder `salvage` has files already.
        VerificationFailed: if there is nothing to verify; with `check`, if there are problems.
    """
    if salvage is not None:
        check_new(os.fspath(salvage))
    paths = [path] if isinstance(path, str | os.PathLike) else path
    found = _verified([os.fspath(one) for one in paths], level)
    if salvage is not None and found.damaged:
        found.salvaged = salvage_files(found.damaged, os.fspath(salvage), level == "decode")
    if check:
        found.check()
    return found


def verify_schema(paths: Sequence[str], schema: Schema, level: Verify) -> Verification:
    """Verifies that TensorFlow parses every record of TFRecord files against a schema."""
    if not schema.features:
        raise UsageError(f"--schema {schema.name}: has no features to check records against")
    found = Verification(list(paths))
    for path in (file for one in paths for records in record_sets(one) for file in records.files):
        folder, _, name = path.rpartition("/")
        # Each file is verified as a shard without an index and class names.
        shard = ShardFiles(folder or ".", "", 0, name, "")
        try:
            verified = verifier_process.verify(shard, ResolvedSchema(schema), level)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
        found.files += 1
        found.records += verified.entry.records
        found.add(verified.problems)
    return found


def _verified(paths: Sequence[str], level: Verify) -> Verification:
    found = Verification()
    files = list[str]()
    for one in paths:
        if folder := _published_folder(one):
            _add_dataset(found, folder, level)
            continue
        found.paths.append(one)
        try:
            sets = record_sets(one)
        except UsageError as error:
            raise VerificationFailed(str(error)) from error  # such as a copy that failed
        if len(sets) == 1 and sets[0].files == (one,):
            files.append(one)  # a shell expands a pattern to files
        else:
            _add_sets(found, sets, level == "decode")
    _add_sets(found, sets_of(files), level == "decode")
    if len(found.paths) > 1:
        found.dataset = None
    return found


def _published_folder(path: str) -> str | None:
    """Returns the folder of a dataset of recordmill, also of one that is not published; or None.

    Raises VerificationFailed if a folder cannot be read: its dataset would be taken for files.
    """
    names = (layout.SUCCESS, layout.MANIFEST, layout.RUN)
    try:
        folder = published.newest_version(published.current_folder(path))
        # Spark writes an empty marker.
        found = any(
            published.content(layout.join(folder, name), published.read_file) for name in names
        )
    except VerificationFailed:
        if not layout.is_web(path):
            raise
        return None  # hosts answer requests of files that they do not have in their own ways
    return folder if found else None


def _add_dataset(found: Verification, folder: str, level: Verify) -> None:
    from recordmill.pipelines.dataset.verify import verify_dataset  # imports Beam

    dataset, problems = verify_dataset(folder, level)
    found.dataset = Dataset(
        dataset.directory, dataset.manifest, dataset.manifest_sha256, dataset.is_committed
    )
    found.paths.append(dataset.directory)
    found.files += len(dataset.shards())
    found.records += dataset.manifest.input.records
    found.features |= {n: f.kind.value for n, f in dataset.manifest.dataset_schema.features.items()}
    found.add(problems)
    shards = {shard.file for shard in dataset.shards().values()}
    damaged = dict.fromkeys(problem.file for problem in problems if problem.record is not None)
    found.damaged += [dataset.path(file) for file in damaged if file in shards]


def _add_sets(found: Verification, sets: Sequence[RecordSet], decode: bool) -> None:
    """Verifies the files of sets, several at a time."""
    files = (file for one in sets for file in one.files)
    verified = map_in_threads(partial(_verify, decode=decode), files, num_cores())
    for one in sets:
        _add_set(found, one, [next(verified) for _ in one.files])


def _verify(path: str, decode: bool) -> VerifiedFile:
    try:
        return verify_file(path, decode)
    except OSError as error:
        unread = VerifiedFile(path)
        unread.add(f"cannot be read: {error.strerror or error}")
        return unread


def _add_set(found: Verification, records: RecordSet, files: Sequence[VerifiedFile]) -> None:
    features = FeaturesSeen()
    for file in files:
        found.files += 1
        found.records += file.records
        found.add(file.problems, file.damaged)
        found.damaged += [file.path] if file.damaged else []
        add_features(features, file.features)
        if not file.records and not file.damaged and not _expected(records, file.path):
            found.warnings.append(Problem(file.path, "has no records"))
    if len({file.is_compressed for file in files if file.records}) > 1:
        what = "some files are compressed and others are not; TensorFlow expects one of both"
        found.warnings.append(Problem(records.folder, what))
    others = sum(file.num_others for file in files)
    if others and features:
        found.add([problem for file in files for problem in file.others], others)
    elif others:
        what = (
            "no record is a tf.train.Example or SequenceExample, so only frames and checksums are "
            "verified"
        )
        found.warnings.append(Problem(records.folder, what))
    examples = sum(file.records for file in files) - others
    kinds = defaultdict[str, dict[str, Seen]](dict)
    for (name, kind), seen in features.items():
        kinds[name][kind] = seen
    for name, by_kind in sorted(kinds.items()):
        found.add(list(_kind_problems(name, by_kind)))
        number = sum(seen.records for seen in by_kind.values())
        if number < examples:
            what = f"feature {name!r} is in {number:,} of {counted(examples, 'record')}"
            found.warnings.append(Problem(records.folder, what))
        found.features[name] = _KINDS.get(max(by_kind, key=lambda k: (k != "", by_kind[k])), "")
    for split, stated in records.splits.items():
        found.add(list(_split_problems(records.folder, split, stated, files)))
    found.add(records.problems)


def _expected(records: RecordSet, path: str) -> bool:
    """Returns whether `dataset_info.json` states the number of records of a file."""
    name = path.rpartition("/")[2]
    return any(name in split.lengths for split in records.splits.values())


def _kind_problems(name: str, kinds: Mapping[str, Seen]) -> Iterator[Problem]:
    """Yields a problem for each kind of a feature, except for that of most records."""
    ordered = sorted((seen.records, kind, seen) for kind, seen in kinds.items() if kind)
    for records, kind, seen in ordered[:-1]:
        usual = f"{_KINDS[ordered[-1][1]]} in {counted(ordered[-1][0], 'record')}"
        number = counted(records, "record")
        what = f"feature {name!r} is {_KINDS[kind]} in {number}, first in this one"
        yield Problem(seen.file, f"{what}; it is {usual}", seen.record, seen.offset)


def _split_problems(
    folder: str, name: str, split: Split, files: Sequence[VerifiedFile]
) -> Iterator[Problem]:
    """Yields the differences between the files of a split and `dataset_info.json`."""
    found = {file.path.removeprefix(folder): file for file in files}
    shards = [found[file] for file in split.lengths if file in found]
    for file, length in split.lengths.items():
        # Damage can hide records: their number is known only if there is none.
        if (shard := found.get(file)) and shard.records != length and not shard.damaged:
            stated = f"{layout.DATASET_INFO} states {length:,}"
            yield Problem(shard.path, f"has {counted(shard.records, 'record')}; {stated}")
            return
    if any(shard.damaged for shard in shards) or len(shards) < len(split.lengths):
        return
    framed = sum(shard.size for shard in shards)
    payload = framed - _FRAMING * sum(shard.records for shard in shards)
    stored = sum(file_size(shard.path) or 0 for shard in shards)
    if split.num_bytes and split.num_bytes not in (payload, framed, stored):
        what = f"split {name!r} has {payload:,} bytes of records; it states {split.num_bytes:,}"
        yield Problem(folder + layout.DATASET_INFO, what)
