"""Computes all findings of a run, which every view shows: terminal, run.json, log, report.

To add a finding, write a function from `Outcome` to `Finding`s in the module of its subject, and
add it to `FINDERS`; nothing else changes. What it needs reaches the manifest in one of these ways:

- noticed on the driver, before rows are read: `SourceEntry.findings` has it as a `Finding`;
- counted by readers: they yield `SkippedInput.named(KIND, names)`; `inputs.SEVERITIES[KIND]` makes
  it a note or a warning;
- anything else: a statistic of its own in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recordmill.pipelines.findings import classes, images, inputs, splits
from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas.findings import Finding
from recordmill.schemas.masking import masked_values

# In the order in which the terminal prints their findings.
FINDERS: tuple[Callable[[Outcome], Iterable[Finding]], ...] = (
    inputs.source_findings,
    inputs.dropped_rows,
    inputs.skipped_inputs,
    splits.shards_of_splits,
    inputs.encoded_images,
    inputs.changed_values,
    splits.group_leakage,
    images.identical_images,
    images.similar_images,
    images.image_quality,
    images.rescaled_annotations,
    images.tiny_boxes,
    splits.missed_shares,
    splits.stratification,
    splits.missing_classes,
    classes.class_sizes,
    classes.class_drift,
    classes.class_names,
    classes.doubtful_labels,
    inputs.base_version,
)


def findings_of(outcome: Outcome) -> tuple[Finding, ...]:
    """Returns the findings of a run, with secrets masked."""
    found = (finding for finder in FINDERS for finding in finder(outcome))
    return tuple(Finding.model_validate(masked_values(f.model_dump())) for f in found)
