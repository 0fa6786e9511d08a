"""Parses records and decodes images with TensorFlow, which shares no code with their writer.

TensorFlow is imported on first use, because the import takes 3-5 s and 450 MB of memory, which
processes that only write do not need.
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

# Ids of the processes that have called `thread_safe_tensorflow`; a fork has to call it again.
_used_in: set[int] = set()

_SHAPE = (ImageAttribute.HEIGHT, ImageAttribute.WIDTH, ImageAttribute.CHANNELS)

# Lines of absl's log that are informational; warnings and errors do not match.
_INFO_LINES = re.compile(
    rb"(?:WARNING: All log messages before absl|To enable the following instructions:"
    rb"|I\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ).*\n"
)

_CHUNK_BYTES = 2**16
_PRINTER_SECONDS = 1


def tensorflow() -> Any:
    """Returns the TensorFlow module, imported on first use without log messages or a GPU."""
    with _IMPORTING:
        if "tensorflow" not in sys.modules:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            with filtered_native_log():
                importlib.import_module("tensorflow")
    return sys.modules["tensorflow"]


def thread_safe_tensorflow() -> Any:
    """Returns the TensorFlow module after a first call of each function used here.

    Works around a race in `PythonAPIDispatcher::Dispatch` of TensorFlow 2.21. When it meets an
    argument type for the first time, it releases the GIL, and another thread overwrites the
    arguments. Several threads that start together crash in a few of a hundred runs.
    """
    tf = tensorflow()
    with _USING:
        if os.getpid() not in _used_in:
            _use_once(tf)
            _used_in.add(os.getpid())
    return tf


def _use_once(tf: Any) -> None:
    """Calls TensorFlow's parsers with every argument type that this module passes to them."""
    spec = {"": tf.io.FixedLenFeature([], tf.int64, 0)}
    for nothing in ([b""], tf.constant([b""])):
        tf.io.parse_example(nothing, spec)
        tf.io.parse_sequence_example(nothing, None, {"": tf.io.VarLenFeature(tf.string)})


def parse_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns the spec of the features for `tf.io.parse_example`; for sequences, of the context."""
    return {name: _spec(feature) for name, feature in resolved.schema.context_features.items()}


def frame_spec(resolved: ResolvedSchema) -> dict[str, Any]:
    """Returns the spec of the frame features for `tf.io.parse_sequence_example`."""
    features = resolved.schema.frame_features.items()
    return {name: _frame_spec(feature) for name, feature in features}


def _frame_spec(feature: Feature) -> Any:
    tf = tensorflow()
    spec = _spec(feature)
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.io.RaggedFeature(spec.dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype)


class UnequalLengthsError(Exception):
    """The frame features of a sequence differ in length."""


@dataclass(frozen=True)
class ParsedBatch:
    """A parsed batch of records.

    Attributes:
        resolved: the schema of the records.
        context: feature name to a tensor of all records' values, (records, ...).
        frames: feature name to a tensor of all frames' values, padded, (records, frames, ...);
            {} unless the records are sequences.
        lengths: the number of frames of each record; None unless the records are sequences.
    """

    resolved: ResolvedSchema
    context: dict[str, Any]
    frames: dict[str, Any]
    lengths: list[int] | None

    def labels(self, name: str) -> list[int]:
        """Returns the class ids of all records, or of all their frames, in a feature."""
        if self.lengths is not None and name in self.frames:
            values = [self.frames[name][i, :n] for i, n in enumerate(self.lengths)]
            return [label for value in values for label in _flat(value)]
        return _flat(self.context[name])

    def decode(self) -> None:
        """Decodes every image with `decode_images`, one sequence at a time."""
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
        resolved: the schema that the records have to match.

    Raises:
        tf.errors.OpError: if a record does not match the schema.
        UnequalLengthsError: if the frame features of a sequence differ in length.
    """
    tf = tensorflow()
    if resolved.schema.sequence is None:
        parsed = tf.io.parse_example(records, parse_spec(resolved))
        return ParsedBatch(resolved, parsed, {}, None)
    context, frames, lengths = tf.io.parse_sequence_example(
        records, parse_spec(resolved) or None, frame_spec(resolved)
    )
    counts = {name: _lengths(frames[name], lengths.get(name)) for name in frames}
    first, *others = counts.values()  # feature name to the length of its list in each record
    for number, found in enumerate(zip(first, *others, strict=True)):
        if len(set(found)) > 1 or not found[0]:
            summary = ", ".join(f"{name!r} {count[number]}" for name, count in counts.items())
            raise UnequalLengthsError(f"its lists do not have one item per frame: {summary}")
    return ParsedBatch(resolved, context, frames, first)


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
    """A decoded image or mask does not have the shape that its record states."""


def decode_images(parsed: dict[str, Any], resolved: ResolvedSchema) -> None:
    """Decodes every image of a batch with the functions that training code uses.

    Args:
        parsed: feature name to a tensor of all records' values, (records, ...).
        resolved: the schema of the records.

    Raises:
        tf.errors.OpError: if TensorFlow cannot decode an image.
        BadImageError: if an image or mask does not have the shape that its record states.
    """
    name = resolved.schema.encoded_image
    if name is None:
        return
    masks = parsed.get(resolved.schema.mask_feature or "")
    attributes = {
        f.image_attribute: key for key, f in resolved.schema.features.items() if f.image_attribute
    }
    stated = [(a, parsed[attributes[a]].numpy()) for a in _SHAPE if a in attributes]
    for i, data in enumerate(parsed[name]):
        mask = None if masks is None else masks[i]
        shape = {attribute: int(values[i]) for attribute, values in stated}
        check_image(data, shape, mask, resolved.schema.masks.bit_depth)


def check_image(data: Any, stated: dict[ImageAttribute, int], mask: Any, bit_depth: int) -> None:
    """Decodes an image and its mask, and compares their shapes with the record's.

    Args:
        data: a scalar tensor of the encoded bytes.
        stated: the height, width and channels that the record states; some may be absent.
        mask: a scalar tensor of the encoded mask; None without one.
        bit_depth: the bits per id of a mask, 8 or 16.

    Raises:
        tf.errors.OpError: if TensorFlow cannot decode the image or the mask.
        BadImageError: if the image or the mask does not have the stated shape.
    """
    tf = tensorflow()
    tf.io.decode_jpeg(data, channels=3)  # many readers call it for PNG as well
    decoded = tf.io.decode_image(data, expand_animations=False)
    found = dict(zip(_SHAPE, decoded.shape, strict=True))
    for attribute, value in stated.items():
        if value != found[attribute]:
            what = f"{attribute.value} of {found[attribute]}, recorded {value}"
            raise BadImageError(f"the image decodes to a {what}")
    if mask is not None:
        _decode_mask(mask, found, bit_depth)


def _decode_mask(data: Any, image: dict[ImageAttribute, int], bit_depth: int) -> None:
    """Decodes a mask, which must have one channel and the size of its image."""
    tf = tensorflow()
    ids = tf.io.decode_png(data, dtype=tf.uint8 if bit_depth == 8 else tf.uint16)
    expected = [image[ImageAttribute.HEIGHT], image[ImageAttribute.WIDTH], 1]
    if ids.shape != expected:
        raise BadImageError(f"the mask decodes to {list(ids.shape)}, expected {expected}")


@contextmanager
def filtered_native_log() -> Iterator[None]:
    """Removes informational lines of absl's log from standard error while the body runs.

    TensorFlow 2.21 ignores its log level during the import. Native code writes to file descriptor
    2 and other threads may print concurrently, so the descriptor is replaced by a pipe, and a
    thread copies everything else.
    """
    kept = os.dup(2)
    source, sink = os.pipe()
    printer = threading.Thread(target=_copy_filtered, args=(source, kept), daemon=True)
    printer.start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        # With a timeout: a child process started by another thread may still hold the pipe open.
        printer.join(_PRINTER_SECONDS)


def _copy_filtered(source: int, target: int) -> None:
    """Copies one file descriptor to another until its end, except `_INFO_LINES`; closes both."""
    with open(source, "rb", buffering=0) as pipe, open(target, "wb", buffering=0) as kept:
        while chunk := pipe.read(_CHUNK_BYTES):
            with suppress(OSError):  # keeps reading: a full pipe would block its writers
                kept.write(_INFO_LINES.sub(b"", chunk))
