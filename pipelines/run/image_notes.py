"""Notes on similar images and on images of low quality."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.image_quality import ISSUES
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.statistics import ImageQuality, NearDuplicates

_SHOWN_LEAKS, _SHOWN_PAIRS, _SHOWN_KEYS = 10, 2, 2


def image_notes(manifest: Manifest) -> list[str]:
    """Returns notes and warnings on similar images and on images of low quality."""
    near, quality = manifest.near_duplicates, manifest.quality
    lines = near_duplicate_notes(near) if near else []
    if near and (near.leaks or near.full_buckets) and _keeps_together(manifest):
        lines.append(
            "      (a row's own split, and that of its key in --base, override --near_duplicates "
            "keep_together; images that were not compared can be in any split)"
        )
    return lines + (quality_notes(quality) if quality else [])


def _keeps_together(manifest: Manifest) -> bool:
    return manifest.config.get("near_duplicates") == "keep_together"


def near_duplicate_notes(near: NearDuplicates) -> list[str]:
    """Returns notes and warnings on similar images."""
    lines = [
        f"warning: {one} and {other} share {_groups(leak.images)} ({_pairs(leak.examples)})"
        for leak in near.leaks[:_SHOWN_LEAKS]
        for one, other in [leak.splits]
    ]
    if (hidden := len(near.leaks) - _SHOWN_LEAKS) > 0:
        lines.append(f"warning: {hidden:,} more pairs of splits share similar images")
    if conflicts := near.conflicts.images:
        verb = "has" if conflicts == 1 else "have"
        shown = _pairs(near.conflicts.examples)
        lines.append(f"warning: {_groups(conflicts)} {verb} more than one label ({shown})")
    lines += [
        f"note: {count:,} {'record' if count == 1 else 'records'} of {split} "
        f"{'has' if count == 1 else 'have'} an image similar to that of another record of {split}"
        for split, count in near.duplicates.items()
    ]
    return lines + limit_notes(near)


def limit_notes(near: NearDuplicates) -> list[str]:
    """Returns notes on limits that the search for similar images has reached."""
    lines = []
    if near.full_buckets:
        what = f"{near.full_buckets:,} sets of images with equal low frequencies are too large"
        lines.append(f"note: {what} to compare all pairs; some similar images may be missing")
    if near.overflow:
        lines.append("note: too many images are similar to be grouped; none of them is listed")
    return lines


def quality_notes(quality: ImageQuality) -> list[str]:
    """Returns a note on each quality issue, with the keys of the worst images."""
    lines = []
    for name, issue in quality.issues.items():
        keys = [example.key for _, example in issue.examples]
        shown = ", ".join(keys[:_SHOWN_KEYS]) + ", …" * (len(keys) > _SHOWN_KEYS)
        count = sum(issue.images.values())
        images = "image is" if count == 1 else "images are"
        lines.append(f"note: {count:,} {images} {ISSUES[name].text} ({shown})")
    return lines


def _groups(number: int) -> str:
    return "1 group of similar images" if number == 1 else f"{number:,} groups of similar images"


def _pairs(examples: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{one} ~ {other}" for one, other in examples[:_SHOWN_PAIRS])
    return f"{shown}, …" if len(examples) > _SHOWN_PAIRS else shown
