"""Collects what a report shows, part by part, and writes it.

A report never makes a conversion fail: a part that cannot be drawn is left out, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recordmill.pipelines.report.charts import Histogram, bars_of, number_text, of_bins, size_text
from recordmill.pipelines.report.classes import class_tables
from recordmill.pipelines.report.duplicates import SHOWN_GROUPS, Group, find_duplicates
from recordmill.pipelines.report.features import feature_sheets
from recordmill.pipelines.report.gallery import Budget, Thumbnail, samples, thumbnails
from recordmill.pipelines.report.page import render
from recordmill.pipelines.report.rejects import reject_groups
from recordmill.pipelines.report.verdict import findings, treated
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.tallies import RATIO_STEPS, SIDE_STEPS, ImageTally
from recordmill.transforms.storage.dataset import Dataset, RecordLocation
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.storage.image_root import ImageRootGuard

T = TypeVar("T")

IMAGE_BYTES = 3_500_000
"""Of all thumbnails, as they stand in the page."""

MAX_SHARD_ROWS = 200


@dataclass(frozen=True)
class Facts:
    """What a report is drawn from.

    Attributes:
        dataset: the written dataset.
        record: how the run ended.
        shapes: what the images look like.
        problems: why it was not published, if verification failed.
    """

    dataset: Dataset
    record: RunRecord
    shapes: ImageTally
    problems: tuple[Problem, ...] = ()

    @property
    def manifest(self) -> Manifest:
        """What the dataset consists of."""
        return self.dataset.manifest


@dataclass
class _Parts:
    """Draws the parts of a page, and keeps what went wrong with them."""

    warnings: list[str] = field(default_factory=list)

    def draw(self, name: str, part: Callable[..., T], *arguments: Any) -> T | None:
        """Returns a part, or None if it cannot be drawn."""
        try:
            return part(*arguments)
        except Exception as error:  # noqa: BLE001 - no fault of a report may cost a dataset
            why = f"{type(error).__name__}: {error}"
            self.warnings.append(f"report.html: {name} could not be drawn: {why}")
            return None


def write_report(facts: Facts) -> list[str]:
    """Writes report.html into a dataset's folder; returns what could not be drawn, and why."""
    parts = _Parts()
    page = parts.draw("the page", lambda: render(content_of(facts, parts)))
    if page is not None:
        path = layout.join(facts.dataset.directory, layout.REPORT)
        parts.draw("the file", write_bytes, path, page)
    return parts.warnings


def content_of(facts: Facts, parts: _Parts) -> dict[str, Any]:
    """Returns all that the page shows."""
    dataset, manifest = facts.dataset, facts.manifest
    budget = Budget(IMAGE_BYTES)
    source = (_fence_of(manifest), manifest.config.get("input_format", "auto"))
    rejects = parts.draw("rejects", reject_groups, dataset, budget, *source)
    groups = parts.draw("duplicates", find_duplicates, dataset)
    tables = class_tables(manifest)
    problems = tuple(str(problem) for problem in facts.problems)
    return {
        "manifest": manifest,
        "run": facts.record,
        "problems": problems,
        "findings": findings(manifest, problems, tables),
        "tables": tables,
        "images": facts.shapes if facts.shapes.images else None,
        "histograms": histograms(facts.shapes),
        "treated": treated(manifest),
        "features": parts.draw("features", feature_sheets, dataset),
        "rejects": rejects,
        "samples": parts.draw("samples", samples, dataset, tables, budget),
        "groups": groups,
        "copies": parts.draw("copies", _copies, dataset, groups or (), budget) or {},
        "throughput": throughput(facts.record),
        "shard_rows": MAX_SHARD_ROWS,
        "most_groups": SHOWN_GROUPS,
        "rejected": budget.refused,
        "warnings": parts.warnings,
    }


def _fence_of(manifest: Manifest) -> ImageRootGuard:
    options = manifest.config
    return ImageRootGuard(None if options.get("allow_outside_root") else options.get("image_root"))


def _copies(
    dataset: Dataset, groups: Sequence[Group], budget: Budget
) -> dict[RecordLocation, Thumbnail]:
    """Returns the thumbnails of images that are in several records."""
    return thumbnails(dataset, (copy for group in groups for copy in group.copies), budget)


def histograms(tally: ImageTally) -> list[tuple[str, Histogram]]:
    """Returns what the images look like, each measure with its name."""
    ends = tally.extremes
    drawn = (
        ("Width, pixels", of_bins(tally.widths, SIDE_STEPS, _whole, ends.get("width"))),
        ("Height, pixels", of_bins(tally.heights, SIDE_STEPS, _whole, ends.get("height"))),
        ("Width : height", of_bins(tally.ratios, RATIO_STEPS, "{:.2f}".format)),
        ("Encoded size", of_bins(tally.sizes, SIDE_STEPS, size_text, ends.get("bytes"))),
    )
    return [(name, histogram) for name, histogram in drawn if histogram]


def _whole(value: float) -> str:
    return number_text(round(value))


def throughput(record: RunRecord) -> Histogram | None:
    """Returns the records written in each interval of a run."""
    line = record.throughput
    if not line.records:
        return None
    edges = [f"{line.begins + i * line.interval:.0f} s" for i in range(len(line.records) + 1)]
    return Histogram(bars_of(line.records, edges), edges[0], edges[-1])
