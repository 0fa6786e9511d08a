"""Re-reads a shard with TensorFlow, the judge that had no part in writing it.

TensorFlow is imported when the first shard is audited: 3-5 s and 450 MB that no writing process
pays. What it finds broken is then located with our own reader of the framing.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, cast

import google_crc32c
import pyarrow.parquet as pq

from schemas import layout
from schemas.dataset_info import Problem, ShardAudit
from schemas.example_pb2 import Example
from schemas.features import Feature, ImageFact, Kind
from schemas.plan import ResolvedSchema
from transforms.files import is_local, open_binary
from transforms.functional.framing import FrameError, read_frames
from transforms.functional.record_index import index_mismatch
from transforms.progress import PULSE

Verify = Literal["parse", "decode"]

_IMPORTING = threading.Lock()
_BATCH_BYTES = 2 * 2**20
_MAX_BATCH = 1024
_CHUNK_BYTES = 2**18


@dataclass(frozen=True)
class ShardFiles:
    """The files of one shard.

    Attributes:
        directory: the dataset's folder.
        split: the shard's split.
        index: its number.
        file: its name below the folder.
        records: the index of its records, below the folder; "" if there is none.
    """

    directory: str
    split: str
    index: int
    file: str
    records: str


@dataclass
class _Contents:
    """What TensorFlow read: the length of each record, and how often each class occurs."""

    lengths: list[int] = field(default_factory=list)
    classes: dict[str, Counter[int]] = field(default_factory=dict)


def tensorflow() -> Any:
    """Returns TensorFlow, imported on first use, quietly, and without a GPU."""
    with _IMPORTING:
        if "tensorflow" not in sys.modules:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            with _no_stderr():
                importlib.import_module("tensorflow")
    return sys.modules["tensorflow"]


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Drops what native code prints: at its import TensorFlow 2.21 heeds no log level."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def audit_shard(shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardAudit:
    """Returns what TensorFlow finds in a shard, and what is wrong with it.

    Args:
        shard: where it is.
        resolved: the schema that every record has to fit.
        verify: "parse" every record, or "decode" every image as well.

    Raises:
        OSError: if the file is not there or cannot be read.
    """
    with _local(layout.join(shard.directory, shard.file)) as path:
        size, sha256, crc32c = _digests(path)
        contents, problems = _read(path, shard, resolved, verify)
    index_sha256, index_crc32c, index_problems = _audit_index(shard, contents)
    return ShardAudit(
        split=shard.split,
        index=shard.index,
        file=shard.file,
        records=len(contents.lengths),
        payload=sum(contents.lengths),
        size=size,
        sha256=sha256,
        crc32c=crc32c,
        index_file=shard.records,
        index_sha256=index_sha256,
        index_crc32c=index_crc32c,
        classes={name: dict(sorted(counts.items())) for name, counts in contents.classes.items()},
        problems=(*problems, *index_problems),
    )


def parse_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns the schema as `tf.io.parse_example` takes it."""
    return {name: _spec(feature) for name, feature in resolved.schema.features.items()}


def _spec(feature: Feature) -> Any:
    tf = tensorflow()
    dtypes = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    if feature.optional:
        return tf.io.VarLenFeature(dtypes[feature.kind])
    return tf.io.FixedLenFeature(list(feature.shape or ()), dtypes[feature.kind])


def _read(
    path: str, shard: ShardFiles, resolved: ResolvedSchema, verify: Verify
) -> tuple[_Contents, list[Problem]]:
    """Parses every record; the first that is broken ends the reading, and is located."""
    tf = tensorflow()
    contents = _Contents(classes={name: Counter() for name in resolved.schema.class_features})
    spec = parse_spec(resolved)
    try:
        for batch in _batches(path):
            parsed = tf.io.parse_example(batch, spec)
            if verify == "decode":
                _decode_images(parsed, resolved)
            _count(parsed, contents, resolved)
            contents.lengths.extend(tf.strings.length(batch).numpy().tolist())
            PULSE.verified += len(batch)
    except (tf.errors.OpError, _BadImageError) as error:
        return contents, [_locate(path, shard.file, resolved, verify, error)]
    return contents, _class_problems(shard.file, contents, resolved)


def _batches(path: str) -> Any:
    """Returns a shard's records in batches of some megabytes, one at a time."""
    tf = tensorflow()
    options = tf.data.Options()
    options.autotune.enabled = False  # it would buffer ahead by the free memory that it sees
    options.experimental_optimization.inject_prefetch = False
    options.threading.private_threadpool_size = 1
    records = tf.data.TFRecordDataset(
        path, compression_type=_compression(path), buffer_size=_CHUNK_BYTES
    )
    return records.batch(_batch_size(path)).with_options(options)


def _batch_size(path: str) -> int:
    """Returns how many records make a batch, by the length of the first."""
    with _uncompressed(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
    return max(1, min(_MAX_BATCH, _BATCH_BYTES // max(1, length)))


def _count(parsed: dict[str, Any], contents: _Contents, resolved: ResolvedSchema) -> None:
    for name in resolved.schema.class_features:
        values = parsed[name]
        dense = values.values if resolved.schema.features[name].optional else values
        contents.classes[name].update(dense.numpy().ravel().tolist())


class _BadImageError(Exception):
    """TensorFlow decodes an image to something else than its record says."""


def _decode_images(parsed: dict[str, Any], resolved: ResolvedSchema) -> None:
    """Decodes every image of a batch as readers do.

    Raises:
        tf.errors.OpError: if TensorFlow cannot.
        _BadImageError: if its size is not the recorded one.
    """
    tf = tensorflow()
    facts = {f.image_fact: name for name, f in resolved.schema.features.items() if f.image_fact}
    if ImageFact.BYTES not in facts:
        return
    images = parsed[facts[ImageFact.BYTES]]
    for i, data in enumerate(images):
        pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
        for axis, fact in enumerate((ImageFact.HEIGHT, ImageFact.WIDTH)):
            recorded = parsed[facts[fact]][i] if fact in facts else None
            if recorded is not None and int(recorded) != pixels.shape[axis]:
                what = f"decodes to a {fact.value} of {pixels.shape[axis]}, recorded {recorded}"
                raise _BadImageError(f"the image {what}")


def _class_problems(file: str, contents: _Contents, resolved: ResolvedSchema) -> list[Problem]:
    """Returns a problem for each class id that has no name."""
    return [
        Problem(file, f"feature {name!r} holds class id {label}; there are {len(names)} classes")
        for name, names in resolved.classes.items()
        for label in contents.classes[name]
        if names and not 0 <= label < len(names)
    ]


def _locate(
    path: str, file: str, resolved: ResolvedSchema, verify: Verify, error: Exception
) -> Problem:
    """Returns which record TensorFlow stumbled over, found by parsing one at a time."""
    tf = tensorflow()
    spec = parse_spec(resolved)
    record = offset = 0
    try:
        with _uncompressed(path) as stream:
            for frame in read_frames(stream):
                record, offset = frame.record, frame.offset
                parsed = tf.io.parse_example([frame.data], spec)
                if verify == "decode":
                    _decode_images(parsed, resolved)
    except FrameError as broken:
        return Problem(file, str(broken), broken.record, broken.offset)
    except (tf.errors.OpError, _BadImageError) as unfit:
        return Problem(file, _first_line(unfit), record, offset)
    except (OSError, EOFError) as damaged:  # within a gzip stream
        return Problem(file, f"the gzip stream is damaged: {damaged}")
    return Problem(file, f"TensorFlow cannot read it: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(getattr(error, "message", error)).strip().partition("\n")[0]


def _audit_index(shard: ShardFiles, contents: _Contents) -> tuple[str, int, list[Problem]]:
    """Returns digest and checksum of the index of a shard's records, and where it is wrong."""
    if not shard.records:
        return "", 0, []
    with open_binary(layout.join(shard.directory, shard.records)) as stream:
        data = stream.read()
    digest, crc32c = hashlib.sha256(data).hexdigest(), google_crc32c.value(data)
    try:
        table = pq.read_table(io.BytesIO(data))
        wrong = index_mismatch(table, shard.split, shard.index, contents.lengths)
    except (OSError, ValueError, KeyError) as error:  # what pyarrow raises for damaged files
        wrong = f"cannot be read: {error}"
    return digest, crc32c, [Problem(shard.records, wrong)] if wrong else []


def _digests(path: str) -> tuple[int, str, int]:
    """Returns a file's size and digest, and the checksum of what it holds uncompressed."""
    digest, size, crc = hashlib.sha256(), 0, 0
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            crc = google_crc32c.extend(crc, chunk)
            size += len(chunk)
    return size, digest.hexdigest(), _unzipped_crc32c(path) if _compression(path) else crc


def _unzipped_crc32c(path: str) -> int:
    crc = 0
    try:
        with _uncompressed(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                crc = google_crc32c.extend(crc, chunk)
    except (OSError, EOFError):
        return -1  # a damaged gzip stream: reading it with TensorFlow tells where
    return crc


def _compression(path: str) -> str:
    return "GZIP" if path.endswith(".gz") else ""


def _uncompressed(path: str) -> BinaryIO:
    stream = open_binary(path)
    return cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if _compression(path) else stream


@contextmanager
def _local(path: str) -> Iterator[str]:
    """Gives a path that TensorFlow can open: object stores are its weak spot."""
    if is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        copy = os.path.join(folder, path.rpartition("/")[2])
        with open_binary(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        yield copy


def first_foreign_record(
    shard: ShardFiles, resolved: ResolvedSchema
) -> tuple[int | None, int | None]:
    """Returns number and offset of the first record whose image is not the one in the index.

    For shards that are whole in themselves but not what was published. (None, None) if the images
    do not tell.
    """
    feature = resolved.schema.image_feature
    if feature is None:
        return None, None
    with open_binary(layout.join(shard.directory, shard.records)) as stream:
        digests = pq.read_table(stream, columns=["sha256"])["sha256"].to_pylist()
    with (
        _local(layout.join(shard.directory, shard.file)) as path,
        _uncompressed(path) as frames,
    ):
        for frame, digest in zip(read_frames(frames), digests, strict=False):
            image = Example.FromString(frame.data).features.feature[feature].bytes_list.value
            if not image or hashlib.sha256(image[0]).hexdigest() != digest:
                return frame.record, frame.offset
    return None, None
