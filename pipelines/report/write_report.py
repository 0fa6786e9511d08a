"""Writes report.html: collects the content of each section and renders the page.

jinja2 escapes every value, and a content security policy in the page forbids everything else.
A report never fails a conversion: a section that cannot be rendered is left out, with a warning.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from recordmill.pipelines.report import statistics
from recordmill.pipelines.report.samples import (
    ThumbnailBudget,
    example_images,
    reject_groups,
    samples,
)
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.masking import masked, visible
from recordmill.schemas.statistics import (
    EXAMPLE_GROUPS,
    ISSUES,
    RATIO_STEPS,
    SIDE_STEPS,
    ImageTally,
)
from recordmill.transforms.functional.images.geometry import TINY
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.storage.local_files import ImageRootGuard

# Limit of the length of a name on the page.
_MAX_CHARACTERS = 1_000

_SPECIAL, _BACKSLASH = r"[\\']", r"\\\g<0>"


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("recordmill.pipelines.report"),
        autoescape=True,
        undefined=StrictUndefined,  # a missing variable is an error, not an empty text
        finalize=_masked,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda n: f"{n:,}",
        size=statistics.size_text,
        number=statistics.number_text,
        percent=_percent,
        plain=_plain,
        short=_short,
        command=_command_text,
    )
    return environment


def _render(content: dict[str, Any]) -> bytes:
    environment = _templates()
    # The content security policy of the page allows only this style sheet, by its digest.
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    page = environment.get_template("report.html").render(content, style=style, style_digest=digest)
    # File names can contain surrogates, which UTF-8 cannot encode.
    return page.encode("utf-8", "backslashreplace")


def _masked(value: Any) -> Any:
    """Masks secrets in texts, except in data URLs."""
    return masked(value) if type(value) is str and not value.startswith("data:") else value


def _plain(value: object) -> str:
    r"""Returns a value as visible text of bounded length.

    >>> print(_plain("a\n"), len(_plain("x" * 10_000)))
    a\x0a 1001
    """
    text = masked(str(value))  # before truncation, which would make a secret unrecognizable
    return visible(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…")


def _short(name: str) -> Markup:
    """Returns the end of a long path, below a thumbnail, with the places where lines may break.

    >>> print(_short("<a>.jpg"), _short("/data/photos/2024/n01440764/n01440764_10026.JPEG"))
    &lt;a&gt;.<wbr>jpg …/<wbr>n01440764_<wbr>10026.<wbr>JPEG
    """
    _, slash, file = name.rpartition("/")
    end = f"…/{file}" if slash and file and len(name) > 32 else name
    return Markup(re.sub(r"[/_.-]+", r"\g<0><wbr>", str(escape(end))))  # noqa: S704 - is escaped


def _percent(part: float, whole: float) -> str:
    """Returns the share of a part as a percentage.

    >>> _percent(1, 3), _percent(0, 0), _percent(9999, 10000)
    ('33.3 %', '0 %', '99.99 %')
    """
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    if share == 100:
        return "100 %"
    return f"{share:.2f} %" if share > 99.9 or share < 0.1 else f"{share:.1f} %"


def _command_text(parts: Sequence[str]) -> str:
    """Returns a command for pasting into a shell, with one flag per line."""
    lines: list[str] = []
    for part in map(_quoted, parts):
        if part.startswith("-") or not lines:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return " \\\n    ".join(lines)


def _quoted(word: str) -> str:
    r"""Quotes a word for bash; invisible characters are written as escapes.

    >>> print(_quoted("a b"), _quoted("it's\u202e"))
    'a b' $'it\'s\u202e'
    """
    if visible(word) == word:
        return shlex.quote(word)
    return f"$'{visible(re.sub(_SPECIAL, _BACKSLASH, word))}'"


T = TypeVar("T")

# Limit of the size of all thumbnails on the page, base64-encoded.
IMAGE_BYTES = 3_500_000

MAX_TABLE_ROWS = 200

_SEVERITIES = ("warning", "note", "info")

# The section of the page with the details of a finding, by the first word of its kind.
_SECTIONS = {
    **dict.fromkeys(("leakage", "label", "dropped", "duplicates", "similar"), "leaks"),
    "quality": "quality",
    **dict.fromkeys(("encoded", "rescaled", "tiny"), "images"),
    **dict.fromkeys(("group", "missed", "missing", "stratification", "absent", "rare"), "splits"),
    **dict.fromkeys(("uneven", "class", "numeric"), "splits"),
}


@dataclass(frozen=True)
class ReportInput:
    """The input of a report."""

    dataset: DatasetFolder
    record: RunRecord
    image_statistics: ImageTally  # sizes and formats of the images that the run wrote
    problems: tuple[Problem, ...] = ()

    @property
    def manifest(self) -> Manifest:
        """The manifest of the dataset."""
        return self.dataset.manifest


@dataclass
class _Sections:
    """Collects the sections of a page, and warnings about those that failed."""

    warnings: list[str] = field(default_factory=list)

    def collect(self, name: str, section: Callable[..., T], *arguments: Any) -> T | None:
        """Returns the result of a section; None, with a warning, if it fails."""
        try:
            return section(*arguments)
        except Exception as error:  # noqa: BLE001 - a bug in the report must not fail the run
            why = f"{type(error).__name__}: {error}"
            self.warnings.append(f"report.html: {name} could not be rendered: {why}")
            return None


def write_report(source: ReportInput) -> list[str]:
    """Writes report.html into the folder of a dataset.

    Returns one warning per section that could not be rendered.
    """
    sections = _Sections()
    page = sections.collect("the page", lambda: _render(_content(source, sections)))
    if page is not None:
        path = layout.join(source.dataset.directory, layout.REPORT)
        sections.collect("the file", write_bytes, path, page)
    return sections.warnings


def _content(source: ReportInput, sections: _Sections) -> dict[str, Any]:
    dataset, manifest = source.dataset, source.manifest
    # Rejects come first: their images matter most if the budget is too small for all.
    budget = ThumbnailBudget(IMAGE_BYTES)
    options = manifest.config
    root = None if options.get("allow_outside_root") else options.get("image_root")
    rejects = sections.collect("rejects", reject_groups, dataset, budget, ImageRootGuard(root))
    tables = statistics.class_tables(manifest)
    problems = tuple(str(problem) for problem in source.problems)
    treatments = manifest.images.items()  # such as "gif to png, upright"
    return {
        "manifest": manifest,
        "run": source.record,
        "problems": problems,
        "findings": sorted(source.record.findings, key=lambda f: _SEVERITIES.index(f.severity)),
        "sections": _SECTIONS,
        "tables": tables,
        "images": source.image_statistics if source.image_statistics.images else None,
        "histograms": _image_histograms(source.image_statistics),
        "tiny": TINY,  # counts boxes, which have no share of the images
        "transcoded": sum(n for how, n in treatments if " to " in how.partition(",")[0]),
        "features": sections.collect("features", statistics.feature_statistics, dataset),
        "rejects": rejects,
        "samples": sections.collect("samples", samples, dataset, tables, budget),
        "examples": sections.collect("example images", example_images, dataset, budget),
        "rules": {name: issue.rule for name, issue in ISSUES.items()},
        "grid": statistics.GRID,
        "max_rows": MAX_TABLE_ROWS,
        "max_groups": EXAMPLE_GROUPS,
        "omitted": budget.omitted,
        "warnings": sections.warnings,
    }


def _image_histograms(tally: ImageTally) -> list[tuple[str, statistics.Histogram]]:
    """Returns (title, histogram) of each image statistic."""
    ends = tally.extremes
    bins: tuple[tuple[str, Counter[int], int, Callable[[float], str], str], ...] = (
        ("Width in pixels", tally.widths, SIDE_STEPS, statistics.whole_text, "width"),
        ("Height in pixels", tally.heights, SIDE_STEPS, statistics.whole_text, "height"),
        ("Aspect ratio (width / height)", tally.ratios, RATIO_STEPS, "{:.2f}".format, ""),
        ("Encoded size", tally.sizes, SIDE_STEPS, statistics.size_text, "bytes"),
    )
    found = (
        (title, statistics.histogram_of_bins(counts, steps, text, ends.get(name)))
        for title, counts, steps, text, name in bins
    )
    return [(title, histogram) for title, histogram in found if histogram]
