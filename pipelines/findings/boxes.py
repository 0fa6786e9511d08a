"""Findings on boxes and outlines."""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas.findings import Finding
from recordmill.transforms.functional.images.geometry import RESCALED, TINY


def rescaled_annotations(outcome: Outcome) -> Iterator[Finding]:
    """Yields the number of images whose size differs from the size that was annotated."""
    if number := outcome.manifest.images.get(RESCALED, 0):
        images = "1 image has" if number == 1 else f"{number:,} images have"
        yield Finding(
            kind="rescaled_annotations",
            severity="note",
            text=f"{images} another size than annotated; annotations are scaled to it",
            figures={"images": number},
        )


def tiny_boxes(outcome: Outcome) -> Iterator[Finding]:
    """Yields a warning if the median box covers less than 0.01 % of its image."""
    features = outcome.manifest.dataset_schema.features
    splits = outcome.manifest.splits.values()
    # The number of boxes is that of their labels.
    label = next((name for name, f in features.items() if f.per_box and f.classes), "")
    boxes = sum(sum(split.classes.get(label, {}).values()) for split in splits)
    tiny = outcome.manifest.images.get(TINY, 0)
    if 2 * tiny > boxes > 0:
        yield Finding(
            kind="tiny_boxes",
            severity="warning",
            text=f"{tiny:,} of {boxes:,} boxes cover less than 0.01 % of their image",
            hint="check their units and order: --boxes units=normalized,order=xywh",
            feature=label,
            figures={"tiny": tiny, "boxes": boxes},
        )
