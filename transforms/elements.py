"""Elements between transforms: the coders of references and rows, and rejects."""

from __future__ import annotations

import pickle
import sys
from typing import Any, NamedTuple

from apache_beam import coders
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.records import ImageRef, Row
from recordmill.schemas.rejects import Reject


class ImageRefCoder(coders.Coder):
    """Encodes a reference in about a hundred bytes, identically on every runner."""

    _values = coders.FastPrimitivesCoder()

    def encode(self, value: ImageRef) -> bytes:
        """Returns the encoded fields of a reference."""
        return bytes(self._values.encode(tuple(value)))

    def decode(self, encoded: bytes) -> ImageRef:
        """Returns the reference with the encoded fields."""
        key, file, *others = self._values.decode(encoded)
        return ImageRef(key, sys.intern(file), *others)  # all rows of a table share one string

    def is_deterministic(self) -> bool:
        """Returns False: references are never keys of a grouping."""
        return False


class RowCoder(coders.Coder):
    """Encodes a row for the shuffle of a join, by pickling: values can be of many types."""

    def encode(self, value: Row) -> bytes:
        """Returns the encoded fields of a row."""
        fields = (dict(value.values), value.file, value.line, value.is_text, value.image)
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Row:
        """Returns the row with the encoded fields."""
        values, file, line, is_text, image = pickle.loads(encoded)  # noqa: S301 - our own
        return Row(values, sys.intern(file), line, is_text, image)

    def is_deterministic(self) -> bool:
        """Returns False: rows are never keys of a grouping."""
        return False


coders.registry.register_coder(ImageRef, ImageRefCoder)
coders.registry.register_coder(Row, RowCoder)


REJECTS = "rejects"


class Outcome(NamedTuple):
    """The outputs of a transform of rows.

    Attributes:
        good: the main output.
        rejects: the dead letters.
    """

    good: PCollection[Any]
    rejects: PCollection[Reject]


def rejected(reject: Reject) -> TaggedOutput:
    """Tags a reject for the dead-letter output of a DoFn."""
    return TaggedOutput(REJECTS, reject)


def displayed(config: ConvertConfig, *names: str) -> dict[str, str]:
    """Returns settings as the display data of a transform, which engines show beside its step.

    Args:
        config: the settings.
        names: the fields to show; those that are None are left out.
    """
    settings = {name: getattr(config, name) for name in names}
    return {name: str(value) for name, value in settings.items() if value is not None}
