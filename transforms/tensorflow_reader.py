"""Reads records as TensorFlow does: the judge that had no part in writing them.

TensorFlow is imported when it is first needed: 3-5 s and 450 MB that no writing process pays.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemas.features import Feature, ImageFact, Kind
from schemas.plan import ResolvedSchema
from transforms.shard_file import compression_of, uncompressed

_IMPORTING = threading.Lock()
_BATCH_BYTES = 2 * 2**20
_BUFFER_BYTES = 2**18
_MAX_BATCH = 1024
_SHAPE = (ImageFact.HEIGHT, ImageFact.WIDTH, ImageFact.CHANNELS)


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


def parse_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns the schema as `tf.io.parse_example` takes it."""
    return {name: _spec(feature) for name, feature in resolved.schema.features.items()}


def _spec(feature: Feature) -> Any:
    tf = tensorflow()
    dtypes = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    if feature.optional:
        return tf.io.VarLenFeature(dtypes[feature.kind])
    return tf.io.FixedLenFeature(list(feature.shape or ()), dtypes[feature.kind])


def record_batches(path: str) -> Any:
    """Returns a shard's records in batches of some megabytes, one at a time."""
    tf = tensorflow()
    options = tf.data.Options()
    options.autotune.enabled = False  # it would buffer ahead by the free memory that it sees
    options.experimental_optimization.inject_prefetch = False
    options.threading.private_threadpool_size = 1
    records = tf.data.TFRecordDataset(
        path, compression_type=compression_of(path), buffer_size=_BUFFER_BYTES
    )
    return records.batch(_batch_size(path)).with_options(options)


def _batch_size(path: str) -> int:
    """Returns how many records make a batch, by the length of the first."""
    with uncompressed(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
    return max(1, min(_MAX_BATCH, _BATCH_BYTES // max(1, length)))


class BadImageError(Exception):
    """TensorFlow decodes an image to something else than its record says."""


def decode_images(parsed: dict[str, Any], resolved: ResolvedSchema) -> None:
    """Decodes every image of a batch as readers do.

    Raises:
        tf.errors.OpError: if TensorFlow cannot.
        BadImageError: if it has another shape than the record says.
    """
    name = resolved.schema.encoded_image
    if name is None:
        return
    tf = tensorflow()
    facts = {f.image_fact: key for key, f in resolved.schema.features.items() if f.image_fact}
    stated = [(fact, parsed[facts[fact]].numpy()) for fact in _SHAPE if fact in facts]
    for i, data in enumerate(parsed[name]):
        tf.io.decode_jpeg(data, channels=3)  # which many readers call, also for PNG
        found = dict(
            zip(_SHAPE, tf.io.decode_image(data, expand_animations=False).shape, strict=True)
        )
        for fact, values in stated:
            if values[i] != found[fact]:
                what = f"{fact.value} of {found[fact]}, recorded {values[i]}"
                raise BadImageError(f"the image decodes to a {what}")
