"""Records of unknown origin: which feature is the image, and what the others contain.

The image is found by its Example key and by its bytes. Sources of the other keys: the TensorFlow
Object Detection API, and DeepLab.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from recordmill.schemas.records import FrameValues
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.images import codecs
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, sniff

# The values by Example key, as `read_features` returns them.
Features = Mapping[str, list[Any]]

MASK_KEY = "image/segmentation/class/encoded"
INSTANCE_KEY = "image/object/mask"
IMAGE_KEYS = ("image/encoded", "image", "image_raw", "encoded", "image/image_raw")
_HEIGHT_KEYS = ("image/height", "height")
_WIDTH_KEYS = ("image/width", "width")
_CHANNEL_KEYS = ("image/channels", "depth", "channels")
RAW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class InferredFeature:
    """A feature, inferred from some records."""

    name: str
    kind: str  # "int64", "float", "bytes", or "empty" if all records lack it
    # Smallest and largest number of values in a record, such as "0 to 2", and of its frames.
    lengths: str
    holds: str  # description of its values, such as "JPEG image" or "0 to 9"


class RawShape(NamedTuple):
    """The shape of an image that is stored as raw uint8 samples."""

    height: int
    width: int
    channels: int


def image_key(features: Features) -> str | None:
    """Returns the Example key of a record's image, or None if it has none."""
    # Known keys first, then any feature with the bytes of one image; raw samples last, since only
    # known keys and a matching size distinguish them from other bytes.
    known = [key for key in IMAGE_KEYS if key in features]
    others = [key for key in features if key not in (*known, MASK_KEY, INSTANCE_KEY)]
    for key in [*known, *others]:
        if len(features[key]) == 1 and is_image(features[key][0]):
            return key
    return next((key for key in known if raw_shape(features, key)), None)


def is_image(value: object) -> bool:
    """Returns whether a value is the bytes of an image in a supported format."""
    return isinstance(value, bytes) and sniff(value[:HEAD_BYTES]) in codecs.PILLOW_FORMATS


def raw_shape(features: Features, key: str) -> RawShape | None:
    """Returns the shape of raw uint8 samples, if the record has one that matches their number."""
    value = features[key][0] if len(features[key]) == 1 else None
    stated = [_first_int(features, keys) for keys in (_HEIGHT_KEYS, _WIDTH_KEYS, _CHANNEL_KEYS)]
    if not isinstance(value, bytes) or None in stated[:2]:
        return None
    height, width, channels = (n or 0 for n in stated)
    # Records may leave out the number of channels: infer it from the number of bytes.
    if not channels and height * width > 0:
        channels = len(value) // (height * width)
    fits = 0 < height * width * channels == len(value) and channels in RAW_MODES
    return RawShape(height, width, channels) if fits else None


def infer_features(records: Sequence[Features]) -> list[InferredFeature]:
    """Returns the features of some records, sorted by name."""
    names = sorted({name for record in records for name in record})
    return [_infer(name, records) for name in names]


def _infer(name: str, records: Sequence[Features]) -> InferredFeature:
    lists = [record.get(name, []) for record in records]
    values, counts = list(chain(*lists)), [len(found) for found in lists]
    span = _span(str(min(counts)), str(max(counts)))
    if frames := [found.frames for found in lists if isinstance(found, FrameValues)]:
        of_frames = _span(str(min(frames)), str(max(frames))) + " frames"
        span = of_frames if frames == counts else f"{span} in {of_frames}"
    if not values:
        return InferredFeature(name, "empty", span, "")
    if isinstance(values[0], bytes):
        return InferredFeature(name, "bytes", span, _describe_bytes(name, values, records))
    kind = "float" if isinstance(values[0], float) else "int64"
    return InferredFeature(name, kind, span, _describe_range(values))


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _describe_range(values: Sequence[Any]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    odd = f", {len(values) - len(finite)} not finite" if len(finite) < len(values) else ""
    if not finite:
        return odd.removeprefix(", ")
    write = str if isinstance(values[0], int) else "{:.6g}".format
    return _span(write(min(finite)), write(max(finite))) + odd


def _describe_bytes(name: str, values: Sequence[bytes], records: Sequence[Features]) -> str:
    kinds = Counter(map(bytes_kind, values))
    # Raw samples may be valid UTF-8 by chance: pixels if all records state a matching size.
    raw = [raw_shape(record, name) for record in records if name in record]
    if set(kinds) <= {"bytes", "text"} and all(raw):
        return "pixels, uint8"
    return ", ".join(kind for kind, _ in kinds.most_common())


def bytes_kind(value: bytes) -> str:
    """Returns the kind of a bytes value: "JPEG image", "damaged image", "text" or "bytes".

    >>> bytes_kind(b"cat"), bytes_kind(bytes([255, 0]))
    ('text', 'bytes')
    """
    if is_image(value):
        try:
            source = codecs.examine_in_process(value)
        except RecordError:
            return "damaged image"
        return f"{(source.format if source else codecs.sniffed_format(value)).upper()} image"
    return "bytes" if decode_text(value) is None else "text"


def decode_text(value: bytes) -> str | None:
    """Returns bytes as text, if they are UTF-8 without control characters except newlines and tabs.

    >>> decode_text("naïve".encode()), decode_text(bytes([0, 1]))
    ('naïve', None)
    """
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    odd = any(unicodedata.category(c) == "Cc" and c not in "\t\n\r" for c in text)
    return None if odd else text


def _first_int(features: Features, keys: Sequence[str]) -> int | None:
    for key in keys:
        values = features.get(key, [])
        if len(values) == 1 and isinstance(values[0], int):
            return values[0]
    return None
