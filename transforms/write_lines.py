"""Writes what became of rows that are no records, a line of JSON each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas import layout

_DIGEST_BYTES = 32


class Told(Protocol):
    """What a line tells: a reject, or a dropped row."""

    def to_json(self) -> str:
        """Returns it as one line of JSON."""


@dataclass(eq=False)
class WriteLines(beam.PTransform):
    """Writes rejects or dropped rows as JSON lines: PCollection[Told] → PCollection[str], the file.

    Attributes:
        directory: the dataset's folder.
        folder: which kind they are: one of `layout.LINES`.
    """

    directory: str
    folder: str

    def expand(self, told: PCollection[Told]) -> PCollection[str]:
        """Adds the writing, in any order; there is a file even without any line."""
        prefix = layout.join(self.directory, self.folder, self.folder)
        return (
            told
            | "ToJson" >> beam.Map(_to_json)
            | "WriteText" >> beam.io.WriteToText(prefix, ".jsonl", num_shards=1)
            | "AtTheStart" >> beam.Map(at_the_start)
        )


def _to_json(told: Told) -> str:
    return told.to_json()


def at_the_start(path: str) -> TimestampedValue:
    """Returns a file's name with a time at which every engine passes it on.

    Beam's writers give it the end of time, and so late Prism leaves it lying.
    """
    return TimestampedValue(path, MIN_TIMESTAMP)


def digest_of_lines(lines: Iterable[bytes]) -> str:
    r"""Returns a hex digest of some lines, which a line more, less, twice or changed changes.

    It is the sum of the lines' own digests, so that memory does not grow with them. It is no
    defence against one who can choose all lines freely; nor is a digest that can be replaced.

    Args:
        lines: each with its line break, so that one that is lacking is seen.

    >>> digest_of_lines([b"a\n", b"b\n"]) == digest_of_lines([b"b\n", b"a\n"])
    True
    >>> digest_of_lines([b"a\n"]) == digest_of_lines([b"a\n", b"a\n"])
    False
    """
    total = sum(int.from_bytes(hashlib.sha256(line).digest(), "big") for line in lines)
    return f"{total % 2 ** (8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"
