"""What passes between transforms: references and rows as they are encoded, and rejects."""

from __future__ import annotations

import pickle
import sys
from typing import Any, NamedTuple

from apache_beam import coders
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reject


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
        """Returns False: references are never keys of a grouping."""
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
        """Returns False: rows are never keys of a grouping."""
        return False


coders.registry.register_coder(ImageRef, ImageRefCoder)
coders.registry.register_coder(Row, RowCoder)


REJECTS = "rejects"


class Outcome(NamedTuple):
    """The outcome of a transform of rows.

    Attributes:
        good: the elements that continue.
        rejects: the dead letters.
    """

    good: PCollection[Any]
    rejects: PCollection[Reject]


def rejected(reject: Reject) -> TaggedOutput:
    """Returns a reject as a DoFn emits it, beside its main output."""
    return TaggedOutput(REJECTS, reject)
