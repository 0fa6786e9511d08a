"""Verifies a shard: re-reads its file, parses all records with TensorFlow, and finds what is wrong.

The file is read once, for its checksums, those of its records, and for TensorFlow. The framing is
read by our own code: TensorFlow's readers take some milliseconds to set up for each file.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import google_crc32c
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem, ShardVerification
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.features import ImageAttribute
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.functional.one_thread_parquet import read_table
from recordmill.transforms.functional.records.examples import read_features, sequence_digest
from recordmill.transforms.functional.records.framing import (
    Frame,
    FrameError,
    read_frames,
)
from recordmill.transforms.functional.records.index import index_mismatch
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.shard_files import (
    DAMAGED_GZIP,
    MeasuredShard,
    ShardFiles,
    open_stored,
    uncompressed,
)
from recordmill.transforms.verification.tensorflow_reader import (
    BadImageError,
    ParsedBatch,
    UnevenSequenceError,
    check_image,
    parse_batch,
    tensorflow,
    thread_safe_tensorflow,
)

_BATCH_BYTES = 2 * 2**20
_BATCH_RECORDS = 1024

_DAMAGED_INDEX = (VerificationFailed, ValueError, LookupError)
"""What reading an index raises that is not valid, lacks a row, or holds no text."""


_WHERE = re.compile(r"^\{\{[^}]*\}\} ?| ?\[Op:\w+\](?: name:.*)?$")
"""What TensorFlow adds to a message about its own graph: no user of ours has ever drawn it."""


def first_foreign_record(shard: ShardFiles, resolved: ResolvedSchema) -> Problem:
    """Returns the first record that differs from the index, for a shard that was replaced.

    Such a shard is valid in itself, but not the one that was published.

    Args:
        shard: the shard's files.
        resolved: the dataset's schema.
    """
    what = "is not the shard that was published: its sha256 differs"
    try:
        path = layout.join(shard.directory, shard.records)
        index = read_index(path, ["length", "sha256"]).to_pylist()
        with uncompressed(layout.join(shard.directory, shard.file)) as frames:
            for frame in read_frames(frames):
                if frame.record >= len(index) or not _fits(frame, index[frame.record], resolved):
                    return Problem(shard.file, what, frame.record, frame.offset)
    except FrameError as broken:
        return Problem(shard.file, str(broken), broken.record, broken.offset)
    except (OSError, *DAMAGED_GZIP, *_DAMAGED_INDEX, DecodeError):
        return Problem(shard.file, what)
    return Problem(shard.file, what)


def with_key(problem: Problem, shard: ShardFiles) -> Problem:
    """Returns a problem with the key of its record, if the index has it.

    Args:
        problem: the problem.
        shard: the files of its shard.
    """
    if problem.record is None or not shard.records:
        return problem
    try:
        keys = read_index(layout.join(shard.directory, shard.records), ["key"])["key"]
        return replace(problem, what=f"{problem.what} (key {keys[problem.record].as_py()!r})")
    except _DAMAGED_INDEX:
        return problem  # the index is a problem of its own, and reported as such


def first_line(error: Exception) -> str:
    """Returns the first line of what an error says."""
    line = str(getattr(error, "message", error)).strip().partition("\n")[0]
    return _WHERE.sub("", line)


def _fits(frame: Frame, entry: dict[str, object], resolved: ResolvedSchema) -> bool:
    """Returns whether a record is the one that the index describes, as far as the index shows."""
    if len(frame.data) != entry["length"]:
        return False
    feature = resolved.schema.image_feature
    if feature is None:
        return True
    images = read_features(frame.data).get(feature, [])
    digests = [hashlib.sha256(image).hexdigest() for image in images]
    if resolved.schema.sequence is not None:
        return sequence_digest(digests) == entry["sha256"]
    return bool(digests) and digests[0] == entry["sha256"]


@dataclass
class _Contents:
    """What TensorFlow read.

    Attributes:
        lengths: of each record.
        frames: of each record, if it is a sequence.
        classes: how often each class occurs.
    """

    lengths: list[int] = field(default_factory=list)
    frames: list[int] | None = None
    classes: dict[str, Counter[int]] = field(default_factory=dict)


def verify_shard(shard: ShardFiles, resolved: ResolvedSchema, level: Verify) -> ShardVerification:
    """Returns what TensorFlow finds in a shard, and what is wrong with it.

    Args:
        shard: where it is.
        resolved: the schema that every record has to fit.
        level: "parse" every record, or "decode" every image as well.

    Raises:
        OSError: if the file is not there or cannot be read.
    """
    with MeasuredShard(layout.join(shard.directory, shard.file)) as file:
        contents, problems = _read(file.stream, shard, resolved, level == "decode")
        of_file = file.digests()
    of_index, wrong = _verify_index(shard, contents)
    if not problems and wrong:  # an index is only compared with a whole shard
        problems = [Problem(shard.records, wrong)]
    entry = ShardEntry.model_construct(  # a file that is not of a dataset may have any name
        file=shard.file,
        records=len(contents.lengths),
        payload=sum(contents.lengths),
        bytes=of_file.size,
        sha256=of_file.sha256,
        crc32c=of_file.crc32c,
        index_file=shard.records,
        index_sha256=of_index[0],
        classes={name: dict(sorted(counts.items())) for name, counts in contents.classes.items()},
        images={},
        frames=None if contents.frames is None else sum(contents.frames),
    )
    return ShardVerification(shard.split, shard.index, entry, of_index[1], tuple(problems))


def _read(
    stream: BinaryIO, shard: ShardFiles, resolved: ResolvedSchema, decode: bool
) -> tuple[_Contents, list[Problem]]:
    """Parses every record, up to the first that is damaged or does not match the schema."""
    thread_safe_tensorflow()
    contents = _Contents(classes={name: Counter() for name in resolved.schema.class_features})
    contents.frames = [] if resolved.schema.sequence else None
    try:
        for batch in _batches(read_frames(stream)):
            parsed = _parse(batch, shard.file, resolved, decode)
            if isinstance(parsed, Problem):
                return contents, [with_key(parsed, shard)]
            _count(batch, parsed, contents)
    except FrameError as broken:
        problem = Problem(shard.file, str(broken), broken.record, broken.offset)
        return contents, [with_key(problem, shard)]
    except DAMAGED_GZIP as damaged:
        last = max(0, len(contents.lengths) - 1)
        what = f"the gzip stream is damaged after record {last}: {damaged}"
        return contents, [Problem(shard.file, what)]
    return contents, _class_problems(shard.file, contents, resolved)


def _batches(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Yields records in batches of some megabytes, then raises the error that ends them, if any."""
    batch, size, damage = list[Frame](), 0, None
    try:
        for frame in frames:
            batch.append(frame)
            size += len(frame.data)
            if size >= _BATCH_BYTES or len(batch) == _BATCH_RECORDS:
                yield batch
                batch, size = [], 0
    except (FrameError, *DAMAGED_GZIP) as error:
        damage = error
    if batch:
        yield batch
    if damage is not None:
        raise damage


def _parse(
    batch: Sequence[Frame], file: str, resolved: ResolvedSchema, decode: bool
) -> ParsedBatch | Problem:
    """Returns some records as TensorFlow parses them, or the first that does not fit."""
    # TensorFlow quotes what does not fit: where that is no text, its message cannot be had.
    errors = (tensorflow().errors.OpError, BadImageError, UnevenSequenceError, UnicodeDecodeError)
    try:
        parsed = parse_batch([frame.data for frame in batch], resolved)
        if decode:
            parsed.decode()
    except errors as error:
        if len(batch) == 1:
            return Problem(file, first_line(error), batch[0].record, batch[0].offset)
        one_by_one = (_parse([frame], file, resolved, decode) for frame in batch)
        unfit = next((found for found in one_by_one if isinstance(found, Problem)), None)
        return unfit or Problem(file, f"TensorFlow cannot read it: {first_line(error)}")
    return parsed


def _count(batch: Sequence[Frame], parsed: ParsedBatch, contents: _Contents) -> None:
    contents.lengths.extend(len(frame.data) for frame in batch)
    for name, counts in contents.classes.items():
        counts.update(parsed.labels(name))
    if contents.frames is not None:
        contents.frames.extend(parsed.lengths or ())


def _class_problems(file: str, contents: _Contents, resolved: ResolvedSchema) -> list[Problem]:
    """Returns a problem for each class id that has no name."""
    return [
        Problem(file, f"feature {name!r} holds class id {label}; there are {len(names)} classes")
        for name, names in resolved.classes.items()
        for label in contents.classes.get(name, ())
        if names and not 0 <= label < len(names)
    ]


def _verify_index(shard: ShardFiles, contents: _Contents) -> tuple[tuple[str, int], str | None]:
    """Returns digest and checksum of the index of a shard's records, and where it is wrong."""
    if not shard.records:
        return ("", 0), None
    with open_stored(layout.join(shard.directory, shard.records)) as stream:
        data = stream.read()
    identity = hashlib.sha256(data).hexdigest(), google_crc32c.value(data)
    try:
        table = read_table(data)
        lengths, frames = contents.lengths, contents.frames
        return identity, index_mismatch(table, shard.split, shard.index, lengths, frames)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return identity, f"cannot be read: {error}"


def decode_error(
    image: bytes, stated: dict[ImageAttribute, int], mask: bytes | None, bit_depth: int
) -> str | None:
    """Returns why TensorFlow does not decode an image to what its record states; None if it does.

    Args:
        image: the encoded bytes.
        stated: the size and channels that they are to have.
        mask: the encoded mask, if there is one.
        bit_depth: of a mask's ids.
    """
    tf = thread_safe_tensorflow()
    try:
        check_image(
            tf.constant(image), stated, None if mask is None else tf.constant(mask), bit_depth
        )
    except (tf.errors.OpError, BadImageError) as error:
        return first_line(error)
    return None
