"""Notes on how the records of a published dataset are distributed over its splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recordmill.schemas.manifest import Manifest

# The part of its asked share by which a split may differ before the summary warns.
_TOLERANCE = 0.2

_SHOWN_CLASSES = 3


def share_notes(manifest: Manifest) -> list[str]:
    """Returns notes on splits without rows, and warnings about splits that miss their share."""
    shares = manifest.shares or {}
    weights = manifest.config.get("splits") or {}
    empty = [name for name in weights if float(weights[name]) > 0 and name not in manifest.splits]
    lines = [f"note: no row was assigned to split {name!r}; it was not written" for name in empty]
    by_hash = manifest.config.get("split_method") == "hash"
    if is_sample(manifest):
        return lines
    remedy = ". For exact shares, set --split_method exact." if by_hash else ""
    return lines + [
        f"warning: {name} has {share.actual:.1%} of the records; expected {share.asked:.1%}{remedy}"
        for name, share in shares.items()
        if name not in empty and abs(share.actual - share.asked) > _TOLERANCE * share.asked
    ]


def stratification_notes(manifest: Manifest) -> list[str]:
    """Returns a note on how close stratified splits come to the share of each class."""
    is_stratified = manifest.config.get("split_method") == "stratified"
    if not is_stratified or not manifest.shares or is_sample(manifest):
        return []
    lines = []
    for feature in manifest.dataset_schema.class_features:
        counts = {
            name: manifest.splits[name].classes.get(feature, {}) if name in manifest.splits else {}
            for name in manifest.shares
        }
        total = Counter[int]()
        for of_split in counts.values():
            total.update(of_split)
        differences = [
            (abs(counts[name].get(label, 0) - share.asked * total[label]), label, name)
            for name, share in manifest.shares.items()
            for label in total
        ]
        if differences:
            most, label, name = max(differences)
            expected = manifest.shares[name].asked * total[label]
            shown = f"{manifest.resolved.class_name(feature, label)} in {name}"
            lines.append(
                f"note: the classes of {feature!r} are within {most:.1f} records of their shares "
                f"({shown}: {counts[name].get(label, 0):,}, share {expected:,.1f})"
            )
    return lines


def missing_class_notes(manifest: Manifest) -> list[str]:
    """Returns a warning about each split that lacks classes, although each split could have them.

    A class with fewer records than there are splits cannot be in each of them.
    """
    if is_sample(manifest):
        return []
    lines = []
    splits = [split for split in manifest.splits.values() if split.records]
    for feature in manifest.dataset_schema.class_features:
        total = Counter[int]()
        for split in splits:
            total.update(split.classes.get(feature, {}))
        for name, split in manifest.ordered_splits.items():
            counts = split.classes.get(feature, {})
            possible = (label for label in total if total[label] >= len(splits))
            missing = sorted(label for label in possible if not counts.get(label))
            if split.records and missing:
                names = [manifest.resolved.class_name(feature, label) for label in missing]
                what = f"{len(names):,} of the {len(total):,} classes of {feature!r}"
                lines.append(f"warning: {name} lacks {what} ({_some(names)})")
    return lines


def is_sample(manifest: Manifest) -> bool:
    """Returns whether rows are a sample, whose splits are those of all rows, as they happen."""
    return manifest.config.get("sample") is not None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN_CLASSES]) + ", …" * (len(names) > _SHOWN_CLASSES)
