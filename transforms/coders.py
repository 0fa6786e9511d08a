"""How references cross a shuffle: as tuples of plain values, which every runner carries cheaply."""

from __future__ import annotations

import sys

from apache_beam import coders

from schemas.records import ImageRef


class ImageRefCoder(coders.Coder):
    """Encodes a reference in some hundred bytes, the same on every runner."""

    _values = coders.FastPrimitivesCoder()

    def encode(self, value: ImageRef) -> bytes:
        """Returns the reference's fields, encoded."""
        return bytes(self._values.encode(tuple(value)))

    def decode(self, encoded: bytes) -> ImageRef:
        """Returns the reference that was encoded."""
        ref = ImageRef._make(self._values.decode(encoded))
        return ref._replace(file=sys.intern(ref.file))  # one string for all rows of a table

    def is_deterministic(self) -> bool:
        """Returns that references are never keys."""
        return False


coders.registry.register_coder(ImageRef, ImageRefCoder)
