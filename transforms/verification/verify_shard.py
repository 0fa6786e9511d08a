"""Verifies a shard: re-reads its file, parses all records with TensorFlow, and reports problems.

For a version from which records were removed, it searches shards for what is left of them.

One pass over the file computes its checksums, checks the CRC of each record, and gives the records
to TensorFlow. Our own code reads the framing, because a TensorFlow dataset takes several
milliseconds to set up for each file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, BinaryIO

import google_crc32c
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem, ShardVerification
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.origins import ImageAttribute
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import RemovedRecords, digest_of_key
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional.records.examples import read_features, sequence_digest
from recordmill.transforms.functional.records.framing import Frame, FrameError, Run, read_runs
from recordmill.transforms.functional.records.index import index_mismatch
from recordmill.transforms.functional.sources.parquet import open_parquet, read_table
from recordmill.transforms.storage.dataset import index_batches, read_index
from recordmill.transforms.storage.files import read
from recordmill.transforms.storage.shard_files import MeasuredShard, ShardFiles, frames_in
from recordmill.transforms.verification import tensorflow_reader

# A batch ends at this size, or at this number of records: large enough to amortize a call of
# TensorFlow, which takes half a millisecond, and a bound on memory.
_BATCH_BYTES = 2 * 2**20
_BATCH_RECORDS = 4096

# Exceptions of reading an index that is invalid, lacks a row, or has the wrong types.
_DAMAGED_INDEX = (VerificationFailed, ValueError, LookupError)
_DAMAGE = (VerificationFailed, FrameError, DecodeError, ValueError, OSError, *DAMAGED_STREAM)


def first_mismatched_record(shard: ShardFiles, resolved: ResolvedSchema) -> Problem:
    """Returns the first record that differs from the index, for a valid but replaced shard."""
    what = "is not the shard that was published: its sha256 differs"
    try:
        path = layout.join(shard.directory, shard.records)
        names = ["length", "sha256", *(["other_images"] if resolved.schema.image_names else [])]
        index = (row for rows in index_batches(path, names) for row in rows.to_pylist())
        for frame in frames_in(layout.join(shard.directory, shard.file)):
            row = next(index, None)
            if row is None or not _matches(frame, row, resolved):
                return Problem(shard.file, what, frame.record, frame.offset)
    except FrameError as error:
        return Problem(shard.file, str(error), error.record, error.offset)
    except (OSError, *DAMAGED_STREAM, *_DAMAGED_INDEX, DecodeError):
        return Problem(shard.file, what)
    return Problem(shard.file, what)


def _with_key(problem: Problem, shard: ShardFiles) -> Problem:
    """Adds the key of the record to a problem, if the index has the key."""
    if problem.record is None or not shard.records:
        return problem
    try:
        first = 0
        for rows in index_batches(layout.join(shard.directory, shard.records), ["key"]):
            if problem.record < first + len(rows):
                key = rows.column(0)[problem.record - first].as_py()
                return replace(problem, message=f"{problem.message} (key {key!r})")
            first += len(rows)
    except _DAMAGED_INDEX:
        pass  # a damaged index is reported as a problem of its own
    return problem


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _matches(frame: Frame, entry: dict[str, Any], resolved: ResolvedSchema) -> bool:
    """Returns whether a record has the length and image hashes that its index row states."""
    if len(frame.data) != entry["length"]:
        return False
    if resolved.schema.image_feature is None:
        return True
    digests = image_digests(frame.data, resolved)
    first = digests.pop("")
    stated: dict[str, list[str]] = {name: [] for name in digests}
    for one in entry.get("other_images", ()):
        if one["image"] in stated:  # some images are read but not stored
            stated[one["image"]].append(one["sha256"])
    if digests != stated:
        return False
    if resolved.schema.sequence is not None:
        return bool(sequence_digest(first) == entry["sha256"])
    return bool(first == [entry["sha256"]])


@dataclass
class _Contents:
    lengths: list[int] = field(default_factory=list)  # the length of each record, in bytes
    # The number of frames of each record; None unless the records are sequences.
    frames: list[int] | None = None
    # The number of occurrences of each class id, by feature name.
    classes: dict[str, Counter[int]] = field(default_factory=dict)
    # The number of values that are NaN or infinite, by feature name.
    not_finite: Counter[str] = field(default_factory=Counter)


def verify_shard(shard: ShardFiles, resolved: ResolvedSchema, level: Verify) -> ShardVerification:
    """Returns the counts and digests of a shard as TensorFlow reads it, and its problems."""
    # A file without an index is none of a dataset, whose names state the compression.
    path = layout.join(shard.directory, shard.file)
    with MeasuredShard(path, by_content=not shard.records) as file:
        contents, problems = _read(file.stream, shard, resolved, level == "decode")
        file_digests = file.digests()
    index_digests, mismatch = _verify_index(shard, contents)
    if not problems and mismatch:  # with a damaged shard, every index would mismatch
        problems = [Problem(shard.records, mismatch)]
    entry = ShardEntry.model_construct(  # not validated: `verify FILE` accepts any file name
        file=shard.file,
        records=len(contents.lengths),
        payload=sum(contents.lengths),
        bytes=file_digests.size,
        sha256=file_digests.sha256,
        crc32c=file_digests.crc32c,
        index_file=shard.records,
        index_sha256=index_digests[0],
        images={},
        not_finite=dict(sorted(contents.not_finite.items())),
        frames=None if contents.frames is None else sum(contents.frames),
    )
    classes = {name: dict(sorted(counts.items())) for name, counts in contents.classes.items()}
    return ShardVerification(
        shard.split, shard.index, entry, index_digests[1], tuple(problems), classes
    )


def _read(
    stream: BinaryIO, shard: ShardFiles, resolved: ResolvedSchema, decode: bool
) -> tuple[_Contents, list[Problem]]:
    """Returns the contents up to the first record that is damaged or invalid, and the problems."""
    contents = _Contents(classes={name: Counter() for name in resolved.schema.class_features})
    contents.frames = [] if resolved.schema.sequence else None
    try:
        for batch in _batches(read_runs(stream)):
            parsed = _parse(batch, shard.file, resolved, decode)
            if isinstance(parsed, Problem):
                return contents, [_with_key(parsed, shard)]
            _count(batch, parsed, contents)
    except FrameError as error:
        problem = Problem(shard.file, str(error), error.record, error.offset)
        return contents, [_with_key(problem, shard)]
    except DAMAGED_STREAM as error:
        last = max(0, len(contents.lengths) - 1)
        what = f"the compressed stream is damaged after record {last}: {error}"
        return contents, [Problem(shard.file, what)]
    return contents, _class_problems(shard.file, contents, resolved)


def _batches(found: Iterable[Run | FrameError]) -> Iterator[Run]:
    """Yields records in batches of a few megabytes; raises an error of the file after the last.

    So the records before the damage are parsed, too, and the first problem of a shard is reported.
    """
    batch, size, damage = Run(0, 0, []), 0, None
    try:
        for run in found:
            if isinstance(run, FrameError):
                raise run
            batch.data.extend(run.data)
            size += run.size
            if len(batch.data) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                yield batch
                batch, size = batch.next([]), 0
    except (FrameError, *DAMAGED_STREAM) as error:
        damage = error
    if batch.data:
        yield batch
    if damage is not None:
        raise damage


def _parse(
    batch: Run, file: str, resolved: ResolvedSchema, decode: bool
) -> tensorflow_reader.ParsedBatch | Problem:
    """Returns a batch as TensorFlow parses it, or the problem of the first invalid record."""
    try:
        parsed = tensorflow_reader.parse_batch(batch.data, resolved)
        if decode:
            parsed.decode()
    except (
        tensorflow_reader.OpError,
        tensorflow_reader.BadImageError,
        tensorflow_reader.UnequalLengthsError,
    ) as error:
        if len(batch.data) == 1:
            return Problem(file, _first_line(error), batch.record, batch.offset)
        # TensorFlow does not state which record of the batch is invalid.
        middle = len(batch.data) // 2
        first = batch._replace(data=batch.data[:middle])
        for half in (first, first.next(batch.data[middle:])):
            if isinstance(problem := _parse(half, file, resolved, decode), Problem):
                return problem
        return Problem(file, f"TensorFlow cannot read it: {_first_line(error)}")
    return parsed


def _count(batch: Run, parsed: tensorflow_reader.ParsedBatch, contents: _Contents) -> None:
    contents.lengths.extend(map(len, batch.data))
    for name, counts in contents.classes.items():
        counts.update(parsed.labels(name))
    contents.not_finite.update(parsed.not_finite())
    if contents.frames is not None:
        contents.frames.extend(parsed.lengths or ())


def _class_problems(file: str, contents: _Contents, resolved: ResolvedSchema) -> list[Problem]:
    """Returns a problem for each class id that is not in the range of the class names."""
    return [
        Problem(file, f"feature {name!r} holds class id {label}; there are {len(names)} classes")
        for name, names in resolved.classes.items()
        for label in contents.classes.get(name, ())
        if names and not 0 <= label < len(names)
    ]


def _verify_index(shard: ShardFiles, contents: _Contents) -> tuple[tuple[str, int], str | None]:
    """Returns the SHA-256 and CRC-32C of a shard's index, and its first mismatch if any."""
    if not shard.records:
        return ("", 0), None
    data = read(layout.join(shard.directory, shard.records))
    index_digests = hashlib.sha256(data).hexdigest(), google_crc32c.value(data)
    try:
        lengths, frames = contents.lengths, contents.frames
        if (rows := open_parquet(data).metadata.num_rows) != len(lengths):
            return index_digests, f"{rows} rows; the shard has {len(lengths)} records"
        table = read_table(data)
        return index_digests, index_mismatch(table, shard.split, shard.index, lengths, frames)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return index_digests, f"cannot be read: {error}"


def decode_error(
    image: bytes, stated: dict[ImageAttribute, int], mask: bytes | None, bit_depth: int
) -> str | None:
    """Returns the error of decoding an image and its mask with TensorFlow; None if it succeeds."""
    try:
        tensorflow_reader.check_image(image, stated, mask, bit_depth)
    except (tensorflow_reader.OpError, tensorflow_reader.BadImageError) as error:
        return _first_line(error)
    return None


def image_digests(data: bytes, resolved: ResolvedSchema) -> dict[str, list[str]]:
    """Returns the hex digests of each image by name, one per frame of a sequence."""
    features = read_features(data)
    return {
        name: [hashlib.sha256(image).hexdigest() for image in features.get(key, [])]
        for key, name in resolved.schema.stored_images.items()
    }


@dataclass(frozen=True)
class Removed:
    """What a version must not have any more."""

    keys: Set[str]
    images: Set[str]
    resolved: ResolvedSchema

    @classmethod
    def of(cls, records: RemovedRecords, resolved: ResolvedSchema) -> Removed:
        """Returns the digests that a certificate states.

        Images that another record has may remain.
        """
        return cls(frozenset(records.keys_sha256), frozenset(records.images_sha256), resolved)

    def found_in(self, key: str, data: bytes) -> Iterator[str]:
        """Yields a description of each part of a record that was removed."""
        if digest_of_key(key) in self.keys:
            yield f"its key {key!r} is one that {layout.REMOVAL} states as removed"
        images = image_digests(data, self.resolved).values()
        if not self.images.isdisjoint(chain.from_iterable(images)):
            yield f"its image is one that {layout.REMOVAL} states as removed (key {key!r})"


def find_removed(directory: str, shard: ShardEntry, removed: Removed) -> list[Problem]:
    """Returns a problem for each record of a shard that was removed, by key or by image.

    Holds the keys of the shard and one record in memory.
    """
    problems = list[Problem]()
    try:
        index = layout.join(directory, shard.index_file)
        keys = read_index(index, ["key"], shard.index_sha256)["key"].to_pylist()
        frames = frames_in(layout.join(directory, shard.file))
        for key, frame in zip(keys, frames, strict=False):
            for what in removed.found_in(key, frame.data):
                problems.append(Problem(shard.file, what, frame.record, frame.offset))
    except _DAMAGE as error:
        problems.append(Problem(shard.file, f"cannot be searched for removed records: {error}"))
    return problems
