"""Parses records and decodes images with TensorFlow, which had no part in writing them.

TensorFlow is imported when it is first needed: 3-5 s and 450 MB that no writing process pays.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.features import Feature, ImageAttribute, Kind
from recordmill.schemas.plan import ResolvedSchema

_IMPORTING = threading.Lock()
_USING = threading.Lock()
_used_in: set[int] = set()
"""Processes: one that is forked shares no more than the import."""

_SHAPE = (ImageAttribute.HEIGHT, ImageAttribute.WIDTH, ImageAttribute.CHANNELS)
_NOISE = re.compile(
    rb"(?:WARNING: All log messages before absl|To enable the following instructions:"
    rb"|I\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ).*\n"
)
"""Of absl's log, notes only: warnings and errors are printed."""

_CHUNK_BYTES = 2**16
_END_SECONDS = 1


def tensorflow() -> Any:
    """Returns TensorFlow, imported on first use, quietly, and without a GPU."""
    with _IMPORTING:
        if "tensorflow" not in sys.modules:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            with without_native_notes():
                importlib.import_module("tensorflow")
    return sys.modules["tensorflow"]


def thread_safe_tensorflow() -> Any:
    """Returns TensorFlow, used once.

    What checks a call's arguments lets another thread in, which overwrites them, when it meets a
    type for the first time (`PythonAPIDispatcher::Dispatch` of TensorFlow 2.21): a crash in some
    of a hundred runs whose threads begin together.
    """
    tf = tensorflow()
    with _USING:
        if os.getpid() not in _used_in:
            _use_once(tf)
            _used_in.add(os.getpid())
    return tf


def _use_once(tf: Any) -> None:
    """Gives it every type of argument that it is given below."""
    spec = {"": tf.io.FixedLenFeature([], tf.int64, 0)}
    for nothing in ([b""], tf.constant([b""])):
        tf.io.parse_example(nothing, spec)
        tf.io.parse_sequence_example(nothing, None, {"": tf.io.VarLenFeature(tf.string)})


def parse_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns the schema as `tf.io.parse_example` takes it; of sequences, their context's."""
    return {name: _spec(feature) for name, feature in resolved.schema.context_features.items()}


def frame_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns a sequence's frames as `tf.io.parse_sequence_example` takes them."""
    features = resolved.schema.frame_features.items()
    return {name: _spec_of_frames(feature) for name, feature in features}


def _spec_of_frames(feature: Feature) -> Any:
    tf = tensorflow()
    spec = _spec(feature)
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.io.RaggedFeature(spec.dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype)


class UnevenSequenceError(Exception):
    """The lists of a sequence do not all have one item a frame."""


@dataclass(frozen=True)
class ParsedBatch:
    """Some records, parsed.

    Attributes:
        resolved: the schema that they fit.
        context: key to the values of all records.
        frames: key to the values of all frames of all records, padded; {} if they are no sequences.
        lengths: the frames of each record; None if they are no sequences.
    """

    resolved: ResolvedSchema
    context: dict[str, Any]
    frames: dict[str, Any]
    lengths: list[int] | None

    def labels(self, name: str) -> list[int]:
        """Returns all class ids in a feature."""
        if self.lengths is not None and name in self.frames:
            values = [self.frames[name][i, :n] for i, n in enumerate(self.lengths)]
            return [label for value in values for label in _flat(value)]
        return _flat(self.context[name])

    def decode(self) -> None:
        """Decodes every image, as `decode_images` does, a sequence at a time."""
        if self.lengths is None:
            decode_images(self.context, self.resolved)
            return
        for i, length in enumerate(self.lengths):
            decode_images({n: v[i, :length] for n, v in self.frames.items()}, self.resolved)


def _flat(values: Any) -> list[int]:
    tf = tensorflow()
    if isinstance(values, tf.SparseTensor):
        values = values.values
    dense = values.flat_values if isinstance(values, tf.RaggedTensor) else values
    found: list[int] = dense.numpy().ravel().tolist()
    return found


def parse_batch(records: Any, resolved: ResolvedSchema) -> ParsedBatch:
    """Parses a batch of serialized records.

    Args:
        records: a string tensor or list, (records,).
        resolved: the schema that they have to match.

    Raises:
        tf.errors.OpError: if a record does not match the schema.
        UnevenSequenceError: if the lists of a sequence differ in length.
    """
    tf = tensorflow()
    if resolved.schema.sequence is None:
        parsed = tf.io.parse_example(records, parse_spec(resolved))
        return ParsedBatch(resolved, parsed, {}, None)
    context, frames, lengths = tf.io.parse_sequence_example(
        records, parse_spec(resolved) or None, frame_spec(resolved)
    )
    counts = {name: _lengths(frames[name], lengths.get(name)) for name in frames}
    one, *others = counts.values()
    for number, found in enumerate(zip(one, *others, strict=True)):
        if len(set(found)) > 1 or not found[0]:
            summary = ", ".join(f"{name!r} {count[number]}" for name, count in counts.items())
            raise UnevenSequenceError(f"its lists do not have one item a frame: {summary}")
    return ParsedBatch(resolved, context, frames, one)


def _lengths(values: Any, dense: Any) -> list[int]:
    found = values.row_lengths() if dense is None else dense
    counts: list[int] = found.numpy().tolist()
    return counts


def _spec(feature: Feature) -> Any:
    tf = tensorflow()
    dtypes = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    if feature.optional:
        return tf.io.VarLenFeature(dtypes[feature.kind])
    shape = list(feature.shape or ())
    if feature.has_open_rows:
        return tf.io.FixedLenSequenceFeature(shape[1:], dtypes[feature.kind], allow_missing=True)
    return tf.io.FixedLenFeature(shape, dtypes[feature.kind])


class BadImageError(Exception):
    """TensorFlow decodes an image to something else than its record says."""


def decode_images(parsed: dict[str, Any], resolved: ResolvedSchema) -> None:
    """Decodes every image of a batch as readers do.

    Args:
        parsed: feature name to a tensor of all records' values, (records, ...).
        resolved: the schema of the records.

    Raises:
        tf.errors.OpError: if TensorFlow cannot decode one.
        BadImageError: if an image has another shape than its record states.
    """
    name = resolved.schema.encoded_image
    if name is None:
        return
    masks = parsed.get(resolved.schema.mask_feature or "")
    attributes = {
        f.image_attribute: key for key, f in resolved.schema.features.items() if f.image_attribute
    }
    stated = [(fact, parsed[attributes[fact]].numpy()) for fact in _SHAPE if fact in attributes]
    for i, data in enumerate(parsed[name]):
        mask = None if masks is None else masks[i]
        sizes = {fact: int(values[i]) for fact, values in stated}
        check_image(data, sizes, mask, resolved.schema.masks.bit_depth)


def check_image(data: Any, stated: dict[ImageAttribute, int], mask: Any, bit_depth: int) -> None:
    """Decodes an image, and its mask, as readers do.

    Args:
        data: a tensor of the encoded bytes.
        stated: what its record says of its shape.
        mask: a tensor of the encoded mask; None if there is none.
        bit_depth: of a mask's ids.

    Raises:
        tf.errors.OpError: if TensorFlow cannot.
        BadImageError: if it has another shape than the record says.
    """
    tf = tensorflow()
    tf.io.decode_jpeg(data, channels=3)  # which many readers call, also for PNG
    decoded = tf.io.decode_image(data, expand_animations=False)
    found = dict(zip(_SHAPE, decoded.shape, strict=True))
    for fact, value in stated.items():
        if value != found[fact]:
            what = f"{fact.value} of {found[fact]}, recorded {value}"
            raise BadImageError(f"the image decodes to a {what}")
    if mask is not None:
        _decode_mask(mask, found, bit_depth)


def _decode_mask(data: Any, image: dict[ImageAttribute, int], bit_depth: int) -> None:
    """Decodes a mask as readers do: it has to be one channel of its image's size."""
    tf = tensorflow()
    ids = tf.io.decode_png(data, dtype=tf.uint8 if bit_depth == 8 else tf.uint16)
    expected = [image[ImageAttribute.HEIGHT], image[ImageAttribute.WIDTH], 1]
    if ids.shape != expected:
        raise BadImageError(f"the mask decodes to {list(ids.shape)}, expected {expected}")


@contextmanager
def without_native_notes() -> Iterator[None]:
    """Prints all that this process writes to standard error, except for the notes of absl's log.

    At its import TensorFlow 2.21 ignores log levels. Other threads may print meanwhile, and native
    code knows standard error by its number alone: so that becomes a pipe while the body runs.
    """
    kept = os.dup(2)
    source, sink = os.pipe()
    printer = threading.Thread(target=_print_rest, args=(source, kept), daemon=True)
    printer.start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        printer.join(_END_SECONDS)  # a process that was started meanwhile may still hold the pipe


def _print_rest(source: int, target: int) -> None:
    """Copies from one descriptor to another, until nobody writes any more; closes both."""
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as kept:
        while chunk := pipe.read(_CHUNK_BYTES):
            with suppress(OSError):  # whoever writes to the pipe must never wait for long
                kept.write(_NOISE.sub(b"", chunk))
