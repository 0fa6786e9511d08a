"""Writes the dead letters."""

from __future__ import annotations

from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection

from schemas import layout
from schemas.rejects import Reject


@dataclass(eq=False)
class WriteRejects(beam.PTransform):
    """Writes rejects as JSON lines: PCollection[Reject] → PCollection[str], the files.

    Attributes:
        directory: the dataset's folder.
    """

    directory: str

    def expand(self, rejects: PCollection[Reject]) -> PCollection[str]:
        """Adds the writing; there is a file even without any reject."""
        prefix = layout.join(self.directory, layout.REJECTS, "rejects")
        return (
            rejects
            | "ToJson" >> beam.Map(Reject.to_json)
            | "WriteJsonLines" >> beam.io.WriteToText(prefix, ".jsonl", num_shards=1)
        )
