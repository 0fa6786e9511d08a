"""Verifies a shard: re-reads its file with TensorFlow, and finds all that is wrong with it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import google_crc32c
import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem, ShardVerification
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.functional.one_thread_parquet import read_table
from recordmill.transforms.functional.records.framing import FRAME_BYTES
from recordmill.transforms.functional.records.index import index_mismatch
from recordmill.transforms.storage.shard_files import (
    DAMAGED_GZIP,
    Digests,
    ShardFiles,
    digests,
    local_copy,
    open_stored,
)
from recordmill.transforms.verification.locate_damage import first_line, locate_fault, with_key
from recordmill.transforms.verification.tensorflow_reader import (
    BadImageError,
    ParsedBatch,
    UnevenSequenceError,
    parse_batch,
    record_batches,
    tensorflow_in_threads,
)


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


def verify_shard(shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardVerification:
    """Returns what TensorFlow finds in a shard, and what is wrong with it.

    Args:
        shard: where it is.
        resolved: the schema that every record has to fit.
        verify: "parse" every record, or "decode" every image as well.

    Raises:
        OSError: if the file is not there or cannot be read.
    """
    with local_copy(layout.join(shard.directory, shard.file)) as path:
        of_file = digests(path)
        contents, problems = _read(path, of_file, shard, resolved, verify == "decode")
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
    path: str, of_file: Digests, shard: ShardFiles, resolved: ResolvedSchema, decode: bool
) -> tuple[_Contents, list[Problem]]:
    """Parses every record; the first that is broken ends the reading, and is located."""
    tf = tensorflow_in_threads()
    contents = _Contents(classes={name: Counter() for name in resolved.schema.class_features})
    contents.frames = [] if resolved.schema.sequence else None
    why = "TensorFlow ends before the file does"  # it takes some bytes at the end for none
    try:
        for batch in record_batches(path):
            parsed = parse_batch(batch, resolved)
            if decode:
                parsed.decode()
            _count(parsed, contents)
            contents.lengths.extend(tf.strings.length(batch).numpy().tolist())
        if of_file.stream == sum(contents.lengths) + FRAME_BYTES * len(contents.lengths):
            return contents, _class_problems(shard.file, contents, resolved)
    except (
        tf.errors.OpError,
        BadImageError,
        UnevenSequenceError,
        UnicodeDecodeError,
        *DAMAGED_GZIP,
    ) as error:
        why = f"TensorFlow cannot read it: {first_line(error)}"
    located = locate_fault(path, shard.file, resolved, decode)
    return contents, [with_key(located, shard) if located else Problem(shard.file, why)]


def _count(parsed: ParsedBatch, contents: _Contents) -> None:
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
    told = hashlib.sha256(data).hexdigest(), google_crc32c.value(data)
    try:
        table = read_table(data)
        lengths, frames = contents.lengths, contents.frames
        return told, index_mismatch(table, shard.split, shard.index, lengths, frames)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return told, f"cannot be read: {error}"
