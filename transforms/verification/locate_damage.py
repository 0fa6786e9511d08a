"""Finds which record of a shard is to blame, with our own reader of the framing."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from google.protobuf.message import DecodeError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import ProofError
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import Frame, FrameError, read_frames
from recordmill.transforms.functional.records.sequence_examples import sequence_digest
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.shard_files import (
    DAMAGED_GZIP,
    ShardFiles,
    local_copy,
    uncompressed,
)
from recordmill.transforms.verification.tensorflow_reader import (
    BadImageError,
    UnevenSequenceError,
    parse_batch,
    tensorflow,
)

_DAMAGED_INDEX = (ProofError, ValueError, LookupError)
"""What reading an index raises that is not valid, lacks a row, or holds no text."""


_WHERE = re.compile(r"^\{\{[^}]*\}\} ?| ?\[Op:\w+\](?: name:.*)?$")
"""What TensorFlow adds to a message about its own graph: no user of ours has ever drawn it."""


def locate_fault(path: str, file: str, resolved: ResolvedSchema, decode: bool) -> Problem | None:
    """Returns the first record that is broken or does not fit the schema; None if none is.

    Args:
        path: the shard, on this machine.
        file: what to call it.
        resolved: the schema that every record has to fit.
        decode: whether every image has to decode, too.
    """
    tf = tensorflow()
    record = offset = 0
    try:
        with uncompressed(path) as stream:
            for frame in read_frames(stream):
                record, offset = frame.record, frame.offset
                parsed = parse_batch([frame.data], resolved)
                if decode:
                    parsed.decode()
    except FrameError as broken:
        return Problem(file, str(broken), broken.record, broken.offset)
    # TensorFlow quotes what does not fit: where that is no text, its message cannot be had.
    except (tf.errors.OpError, BadImageError, UnevenSequenceError, UnicodeDecodeError) as unfit:
        return Problem(file, first_line(unfit), record, offset)
    except DAMAGED_GZIP as damaged:
        return Problem(file, f"the gzip stream is damaged after record {record}: {damaged}")
    return None


def first_foreign_record(shard: ShardFiles, resolved: ResolvedSchema) -> Problem:
    """Returns the first record that is not the one in the index, of a shard that is another.

    For shards that are whole in themselves, but not what was published.
    """
    what = "is not the shard that was published: its sha256 differs"
    try:
        path = layout.join(shard.directory, shard.records)
        index = read_index(path, ["length", "sha256"]).to_pylist()
        with (
            local_copy(layout.join(shard.directory, shard.file)) as path,
            uncompressed(path) as frames,
        ):
            for frame in read_frames(frames):
                if frame.record >= len(index) or not _fits(frame, index[frame.record], resolved):
                    return Problem(shard.file, what, frame.record, frame.offset)
    except FrameError as broken:
        return Problem(shard.file, str(broken), broken.record, broken.offset)
    except (*DAMAGED_GZIP, *_DAMAGED_INDEX, DecodeError):
        return Problem(shard.file, what)
    return Problem(shard.file, what)


def with_key(problem: Problem, shard: ShardFiles) -> Problem:
    """Returns a problem that names the key of the record to blame, if the index can tell it."""
    if problem.record is None or not shard.records:
        return problem
    try:
        keys = read_index(layout.join(shard.directory, shard.records), ["key"])["key"]
        return replace(problem, what=f"{problem.what} (key {keys[problem.record].as_py()!r})")
    except _DAMAGED_INDEX:
        return problem  # the index is a problem of its own, and told as such


def first_line(error: Exception) -> str:
    """Returns the first line of what an error says."""
    line = str(getattr(error, "message", error)).strip().partition("\n")[0]
    return _WHERE.sub("", line)


def _fits(frame: Frame, entry: dict[str, object], resolved: ResolvedSchema) -> bool:
    """Returns whether a record is the one that the index describes, as far as that tells."""
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
