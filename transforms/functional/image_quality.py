"""Finds images of low quality by the measures in `records/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.image_quality import ISSUES, IssueName
from recordmill.schemas.statistics import EXAMPLES, ImageQuality, QualityIssue, RecordExample

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Value = TypeVar("Value", float, Floats)

# The columns of `records/` that the issues are found by.
MEASURES = ("width", "height", "luma_p5", "luma_p99", "luma_std", "entropy", "sharpness")


def values_of(images: pa.Table) -> dict[IssueName, Floats]:
    """Returns the measure of each issue, by its name; NaN where it is unknown.

    `images` are the columns in `MEASURES`, with one image per row.
    """
    columns = {
        name: pc.cast(images[name], pa.float64()).to_numpy(zero_copy_only=False)
        for name in MEASURES
    }
    shorter = np.minimum(columns["width"], columns["height"])
    longer = np.maximum(columns["width"], columns["height"])
    columns |= {"aspect": shorter / longer, "side": shorter}
    return {name: columns[issue.measure] for name, issue in ISSUES.items()}


def find_issues(values: Mapping[IssueName, Floats]) -> dict[IssueName, npt.NDArray[np.bool_]]:
    """Returns which images have each issue, by its name."""
    return {
        # Comparisons with NaN are false: an unknown measure is no issue.
        name: values[name] > issue.limit if issue.above else values[name] < issue.limit
        for name, issue in ISSUES.items()
    }


def quality_of_shard(
    split: str, shard: int, images: pa.Table, keys: pa.Array, records: Integers
) -> ImageQuality:
    """Returns the statistics of the images of one shard.

    `images` are the columns in `MEASURES`, with one image per row.
    """
    values = values_of(images)
    issues = {}
    for name, found in find_issues(values).items():
        if found.any():
            at = np.flatnonzero(found)
            # The worst first; images with equal measures in the order of the shard.
            worst = at[np.argsort(_severity(name, values[name][at]), kind="stable")][:EXAMPLES]
            shown = [
                (round(float(values[name][i]), 4), keys[records[i]].as_py(), int(records[i]))
                for i in worst
            ]
            examples = tuple(
                (value, RecordExample(key=key, split=split, shard=shard, index=record))
                for value, key, record in shown
            )
            issues[name] = QualityIssue(images={split: len(at)}, examples=examples)
    return ImageQuality(measured=len(images) - images["luma_std"].null_count, issues=issues)


def merge_quality(parts: Iterable[ImageQuality]) -> ImageQuality:
    """Returns the sum of the statistics of different images."""
    found = list(parts)
    issues = {}
    for name in ISSUES:
        of_issue = [part.issues[name] for part in found if name in part.issues]
        if of_issue:
            images = Counter[str]()
            for issue in of_issue:
                images.update(issue.images)
            examples = [example for issue in of_issue for example in issue.examples]
            examples.sort(key=lambda example: (_severity(name, example[0]), example[1].key))
            issues[name] = QualityIssue(
                images=dict(sorted(images.items())), examples=tuple(examples[:EXAMPLES])
            )
    return ImageQuality(measured=sum(part.measured for part in found), issues=issues)


def _severity(name: IssueName, value: Value) -> Value:
    """Returns a sort key: the worse an image, the smaller."""
    return -value if ISSUES[name].above else value
