"""How references cross a shuffle: as tuples of plain values, which every runner carries cheaply."""

from __future__ import annotations

from apache_beam import coders

from schemas.records import ImageRef


class ImageRefCoder(coders.Coder):
    """Encodes a reference in some hundred bytes, the same on every runner."""

    _values = coders.FastPrimitivesCoder()

    def encode(self, value: ImageRef) -> bytes:
        """Returns the reference's fields, encoded."""
        return bytes(self._values.encode(tuple(vars(value).values())))

    def decode(self, encoded: bytes) -> ImageRef:
        """Returns the reference that was encoded."""
        return ImageRef(*self._values.decode(encoded))

    def is_deterministic(self) -> bool:
        """Returns that references are never keys."""
        return False


coders.registry.register_coder(ImageRef, ImageRefCoder)
