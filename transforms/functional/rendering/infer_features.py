"""What the features of some examples are, told from the examples alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.images.source_image import examine_here, sniffed_format
from recordmill.transforms.functional.rendering.drawing import Features, is_image, raw_shape
from recordmill.transforms.functional.rendering.visible_text import text_of


@dataclass(frozen=True)
class InferredFeature:
    """One feature, as far as some records show it.

    Attributes:
        name: the Example key.
        kind: "int64", "float", "bytes", or "empty" if no record holds a value.
        lengths: the fewest and the most values in a record; records without the feature have 0.
        holds: what its values are, in words.
    """

    name: str
    kind: str
    lengths: tuple[int, int]
    holds: str


def infer_features(records: Sequence[Features]) -> list[InferredFeature]:
    """Returns the features of some records, sorted by name."""
    names = sorted({name for record in records for name in record})
    return [_infer(name, records) for name in names]


def _infer(name: str, records: Sequence[Features]) -> InferredFeature:
    lengths = [len(record.get(name, [])) for record in records]
    values = [value for record in records for value in record.get(name, [])]
    span = min(lengths), max(lengths)
    if not values:
        return InferredFeature(name, "empty", span, "")
    if isinstance(values[0], bytes):
        return InferredFeature(name, "bytes", span, _bytes_in_words(name, values, records))
    kind = "float" if isinstance(values[0], float) else "int64"
    return InferredFeature(name, kind, span, _range(values))


def _range(values: Sequence[Any]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    odd = f", {len(values) - len(finite)} not finite" if len(finite) < len(values) else ""
    if not finite:
        return odd.removeprefix(", ")
    low, high = f"{min(finite):.6g}", f"{max(finite):.6g}"
    if isinstance(values[0], int):
        low, high = str(min(finite)), str(max(finite))
    return (low if low == high else f"{low} to {high}") + odd


def _bytes_in_words(name: str, values: Sequence[bytes], records: Sequence[Features]) -> str:
    kinds = Counter(map(bytes_kind, values))
    raw = [raw_shape(record, name) for record in records if name in record]
    if set(kinds) <= {"bytes", "text"} and all(raw):
        return "pixels, uint8"
    return ", ".join(kind for kind, _ in kinds.most_common())


def bytes_kind(value: bytes) -> str:
    """Returns what bytes are: "JPEG image", "text" or "bytes".

    >>> bytes_kind(b"cat"), bytes_kind(bytes([255, 0]))
    ('text', 'bytes')
    """
    if is_image(value):
        try:
            source = examine_here(value)
        except RecordError:
            return "damaged image"
        return f"{(source.format if source else sniffed_format(value)).upper()} image"
    return "bytes" if text_of(value) is None else "text"
