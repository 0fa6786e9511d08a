"""How references and rows cross a shuffle: as plain values, cheap for every runner."""

from __future__ import annotations

import pickle
import sys

from apache_beam import coders

from recordmill.schemas.records import ImageRef, Row


class ImageRefCoder(coders.Coder):
    """Encodes a reference in some hundred bytes, the same on every runner."""

    _values = coders.FastPrimitivesCoder()

    def encode(self, value: ImageRef) -> bytes:
        """Returns the reference's fields, encoded."""
        return bytes(self._values.encode(tuple(value)))

    def decode(self, encoded: bytes) -> ImageRef:
        """Returns the reference that was encoded."""
        key, file, *others = self._values.decode(encoded)
        return ImageRef(key, sys.intern(file), *others)  # one string for all rows of a table

    def is_deterministic(self) -> bool:
        """Returns that references are never keys."""
        return False


class RowCoder(coders.Coder):
    """Encodes a row that is joined with others: pickled, since its values can be any text."""

    def encode(self, value: Row) -> bytes:
        """Returns the row's fields, encoded."""
        fields = (dict(value.values), value.file, value.line, value.is_text, value.image)
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Row:
        """Returns the row that was encoded."""
        values, file, line, is_text, image = pickle.loads(encoded)  # noqa: S301 - our own
        return Row(values, sys.intern(file), line, is_text, image)

    def is_deterministic(self) -> bool:
        """Returns that rows are never keys."""
        return False


coders.registry.register_coder(ImageRef, ImageRefCoder)
coders.registry.register_coder(Row, RowCoder)
