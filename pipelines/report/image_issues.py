"""The groups of similar images and the images of low quality that a report shows."""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.pipelines.report.duplicates import DuplicateGroup
from recordmill.schemas.image_quality import ISSUES, IssueName
from recordmill.schemas.statistics import RecordExample
from recordmill.transforms.storage.dataset import Dataset, RecordLocation


@dataclass(frozen=True)
class ShownIssue:
    """A quality issue with its worst images."""

    name: IssueName  # its name, as in `--reject_quality`
    rule: str
    images: int
    examples: tuple[tuple[float, RecordLocation], ...]


def similar_groups(dataset: Dataset) -> tuple[DuplicateGroup, ...]:
    """Returns the groups of similar images that the manifest has as examples."""
    near = dataset.manifest.near_duplicates
    return tuple(
        DuplicateGroup(
            group.records,
            tuple(_location(dataset, example) for example in group.examples),
            group.spans_splits,
            group.conflicting,
        )
        for group in (near.examples if near else ())
    )


def quality_issues(dataset: Dataset) -> tuple[ShownIssue, ...]:
    """Returns the quality issues of a dataset, each with its worst images."""
    quality = dataset.manifest.quality
    return tuple(
        ShownIssue(
            name,
            ISSUES[name].rule,
            sum(issue.images.values()),
            tuple((value, _location(dataset, example)) for value, example in issue.examples),
        )
        for name, issue in (quality.issues.items() if quality else ())
    )


def _location(dataset: Dataset, example: RecordExample) -> RecordLocation:
    shard = dataset.shards()[example.split, example.shard]
    return dataset.location(shard, example.index)
