"""Analyses of rows, for the tests of the analyze pass and of the plan."""

from __future__ import annotations

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import ResolvedSchema, SplitRanges
from recordmill.schemas.records import Row
from recordmill.transforms.functional.rows.analysis import Analysis, Analyzer
from recordmill.transforms.functional.rows.binding import Binding


def analyzer(schema, **options):
    config = ConvertConfig(inputs=("t.csv",), output="out", name="d", schema=schema, **options)
    binding = Binding(
        ResolvedSchema(schema, {}),
        config.columns,
        config.image_root,
        config.key_column,
        config.split_column,
        config.group_column,
        frozenset(config.weights) if config.splits else None,
    )
    return Analyzer(config, schema, binding, SplitRanges.from_weights(config.weights))


def analyze(rows, asked):
    analysis = Analysis()
    for start in range(0, len(rows), 3):
        analysis.add(rows[start : start + 3], asked)
    return analysis


def text_rows(*rows):
    return [
        Row(values, "/d/t.csv", line, is_text=True) for line, values in enumerate(rows, start=2)
    ]
