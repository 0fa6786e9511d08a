"""TFDS on Beam: the same examples, grouped by TFDS's Beam writer, images and all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.baseline import Outcome, main
from benchmarks.baselines.tfds_plain import Photographs, build, keyed_example
from benchmarks.shuffle import metered_shuffle


class BeamPhotographs(Photographs):
    """The dataset, its examples made by Beam."""

    def _generate_examples(self) -> Any:
        return beam.Create(self.rows()) | beam.Map(keyed_example)


def convert(table: Path, output: Path) -> Outcome:
    """Builds the dataset on Beam's in-process runner (never Prism)."""
    with metered_shuffle() as shuffled:
        examples = build(
            BeamPhotographs,
            table,
            output,
            beam_runner=FnApiRunner(),
            beam_options=PipelineOptions([]),
        )
    return Outcome(examples, shuffled.bytes)


if __name__ == "__main__":
    main(convert)
