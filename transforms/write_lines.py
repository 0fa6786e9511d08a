"""Writes what became of rows that are no records, a line of JSON each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas import layout


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
