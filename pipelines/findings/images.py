"""Findings on images: identical and similar ones, and those of low quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas.findings import Finding, counted, some
from recordmill.schemas.image_quality import ISSUES
from recordmill.schemas.statistics import (
    Conflicts,
    DuplicateStats,
    ImageQuality,
    Leakage,
    NearDuplicates,
    Pair,
)
from recordmill.transforms.functional.images.geometry import RESCALED, TINY

# Limit for pairs of splits that share images: 300 splits have 44,850 pairs.
_SHOWN_LEAKS = 10
_SHOWN_PAIRS = 2

_DEDUPLICATE = "--deduplicate content keeps one row of each image"
_OWN_SPLIT = (
    "a row's own split, and that of its key in --base, override --near_duplicates keep_together; "
    "images that were not compared can be in any split"
)


def identical_images(outcome: Outcome) -> Iterator[Finding]:
    """Yields leakage, conflicting labels and duplicates of identical images."""
    return duplicates(outcome.manifest.content)


def duplicates(content: DuplicateStats) -> Iterator[Finding]:
    """Yields leakage, conflicting labels and duplicates of identical images."""
    yield from _leakage(content.leaks, "leakage", _images, "=", "images")
    if content.conflicts.images:
        text = f"{_conflicts(content.conflicts, _images, '=')}. Check which label is right."
        yield _conflict("label_conflicts", text, content.conflicts)
    if content.dropped_conflicts.images:
        what = _conflicts(content.dropped_conflicts, _images, "=")
        text = f"{what}; one record of each was kept. Check its label."
        yield _conflict("dropped_label_conflicts", text, content.dropped_conflicts)
    for split, number in content.duplicates.items():
        what = f"{_records(number, split)} the same image as another record of {split}"
        yield _duplicate("duplicates", what, split, number, _DEDUPLICATE)


def similar_images(outcome: Outcome) -> Iterator[Finding]:
    """Yields leakage, conflicting labels and duplicates of similar images."""
    near = outcome.manifest.near_duplicates
    is_kept_together = outcome.manifest.config.get("near_duplicates") == "keep_together"
    return _near_duplicates(near, is_kept_together) if near else iter(())


def _near_duplicates(near: NearDuplicates, is_kept_together: bool = False) -> Iterator[Finding]:
    """Yields leakage, conflicting labels and duplicates of similar images, and limits reached."""
    hint = _OWN_SPLIT if is_kept_together else ""
    yield from _leakage(near.leaks, "similar_leakage", _groups, "~", "similar images", hint)
    if near.conflicts.images:
        text = _conflicts(near.conflicts, _groups, "~")
        yield _conflict("similar_label_conflicts", text, near.conflicts)
    for split, number in near.duplicates.items():
        what = f"{_records(number, split)} an image similar to that of another record of {split}"
        yield _duplicate("similar", what, split, number)
    if near.full_buckets:
        what = f"{near.full_buckets:,} sets of images with equal low frequencies are too large"
        yield Finding(
            kind="similar_not_compared",
            severity="note",
            text=f"{what} to compare all pairs; some similar images may be missing",
            hint=hint,
            figures={"sets": near.full_buckets},
        )
    if near.overflow:
        text = "too many images are similar to be grouped; none of them is listed"
        yield Finding(kind="similar_not_grouped", severity="note", text=text)


def image_quality(outcome: Outcome) -> Iterator[Finding]:
    """Yields each quality issue, with the keys of the worst images."""
    return _quality_issues(outcome.manifest.quality or ImageQuality())


def _quality_issues(quality: ImageQuality) -> Iterator[Finding]:
    """Yields each quality issue, with the keys of the worst images."""
    for name, issue in quality.issues.items():
        keys = tuple(example.key for _, example in issue.examples)
        number = sum(issue.images.values())
        images = "image is" if number == 1 else "images are"
        yield Finding(
            kind=f"quality_{name}",
            severity="note",
            text=f"{number:,} {images} {ISSUES[name].text} ({some(keys, shown=_SHOWN_PAIRS)})",
            splits=tuple(issue.images),
            figures={"images": number},
            examples=keys,
        )


def _leakage(
    leaks: Sequence[Leakage],
    kind: str,
    noun: Callable[[int], str],
    sign: str,
    plural: str,
    hint: str = _DEDUPLICATE,
) -> Iterator[Finding]:
    """Yields the first pairs of splits that share images, and the number of the others."""
    for leak in leaks[:_SHOWN_LEAKS]:
        one, two = leak.splits
        yield Finding(
            kind=kind,
            severity="warning",
            text=f"{one} and {two} share {noun(leak.images)} ({_pairs(leak.examples, sign)})",
            hint=hint,
            splits=leak.splits,
            figures={"images": leak.images, "records": leak.records},
            examples=leak.examples,
        )
    if (hidden := len(leaks) - _SHOWN_LEAKS) > 0:
        text = f"{counted(hidden, 'more pair')} of splits share {plural}"
        figures: Mapping[str, int] = {"pairs": hidden}
        yield Finding(kind=kind, severity="warning", text=text, hint=hint, figures=dict(figures))


def _conflict(kind: str, text: str, conflicts: Conflicts) -> Finding:
    figures = {"images": conflicts.images, "records": conflicts.records}
    return Finding(
        kind=kind, severity="warning", text=text, figures=dict(figures), examples=conflicts.examples
    )


def _duplicate(kind: str, text: str, split: str, number: int, hint: str = "") -> Finding:
    figures = {"records": number}
    return Finding(
        kind=kind, severity="note", text=text, hint=hint, splits=(split,), figures=dict(figures)
    )


def _conflicts(conflicts: Conflicts, noun: Callable[[int], str], sign: str) -> str:
    verb = "has" if conflicts.images == 1 else "have"
    shown = _pairs(conflicts.examples, sign)
    return f"{noun(conflicts.images)} {verb} more than one label ({shown})"


def _images(number: int) -> str:
    return counted(number, "image")


def _groups(number: int) -> str:
    return "1 group of similar images" if number == 1 else f"{number:,} groups of similar images"


def _records(number: int, split: str) -> str:
    return f"{counted(number, 'record')} of {split} {'has' if number == 1 else 'have'}"


def _pairs(examples: Sequence[Pair], sign: str) -> str:
    return some([f"{one} {sign} {two}" for one, two in examples], shown=_SHOWN_PAIRS)


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
