"""Writes report.html: collects the content of each section and renders the page.

jinja2 escapes every value, and a content security policy in the page forbids everything else.
A report never fails a conversion: a section that cannot be rendered is left out, with a warning.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from recordmill.pipelines.report.findings import (
    SHOWN_GROUPS,
    Group,
    find_duplicates,
    findings,
    treated,
)
from recordmill.pipelines.report.rejects import reject_groups
from recordmill.pipelines.report.samples import Budget, Thumbnail, samples, thumbnails
from recordmill.pipelines.report.statistics import (
    Histogram,
    bars_of,
    class_tables,
    feature_sheets,
    number_text,
    of_bins,
    size_text,
)
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.masking import masked
from recordmill.schemas.tallies import RATIO_STEPS, SIDE_STEPS, ImageTally
from recordmill.transforms.functional.rendering.visible_text import visible
from recordmill.transforms.storage.dataset import Dataset, RecordLocation
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.storage.image_root import ImageRootGuard

_LONGEST = 1_000
"""Characters of a name that a page shows."""

_SPECIAL, _BACKSLASH = r"[\\']", r"\\\g<0>"


def render(content: dict[str, Any]) -> bytes:
    """Returns the page that shows some content."""
    environment = Environment(
        loader=PackageLoader("recordmill.pipelines.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_masked,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda n: f"{n:,}",
        size=size_text,
        number=number_text,
        percent=percent,
        plain=plain,
        command=command_text,
    )
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    template = environment.get_template("report.html")
    page = template.render(style=style, style_digest=digest, **content)
    return page.encode("utf-8", "backslashreplace")


def _masked(value: Any) -> Any:
    """Returns what a page shows of a value: of a text, all that is no secret."""
    return masked(value) if type(value) is str and not value.startswith("data:") else value


def plain(value: object) -> str:
    r"""Returns a value as visible text of bounded length: a name may have millions of characters.

    >>> print(plain("a\n"), len(plain("x" * 10_000)))
    a\x0a 1001
    """
    text = masked(str(value))  # before it is cut: what is left of a secret looks like none
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def percent(part: float, whole: float) -> str:
    """Returns a part as a percentage.

    >>> percent(1, 3), percent(0, 0), percent(9999, 10000)
    ('33.3 %', '0 %', '99.99 %')
    """
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    if share == 100:
        return "100 %"
    return f"{share:.2f} %" if share > 99.9 or share < 0.1 else f"{share:.1f} %"


def command_text(parts: Sequence[str]) -> str:
    """Returns a command as a shell takes it, a flag a line."""
    lines: list[str] = []
    for part in map(quoted, parts):
        if part.startswith("-") or not lines:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return " \\\n    ".join(lines)


def quoted(word: str) -> str:
    r"""Returns a word as bash takes it, with nothing in it that cannot be seen.

    >>> print(quoted("a b"), quoted("it's\u202e"))
    'a b' $'it\'s\u202e'
    """
    if visible(word) == word:
        return shlex.quote(word)
    return f"$'{visible(re.sub(_SPECIAL, _BACKSLASH, word))}'"


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
