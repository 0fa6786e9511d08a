"""Notes on classes that are rare, and on those that differ from the base version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recordmill.pipelines.run.split_notes import is_sample
from recordmill.schemas.manifest import ClassDrift, Manifest

# The fewest images per label that Vertex AI accepts for training.
_FEW = 10

_SHOWN_CLASSES = 3


def rare_class_notes(manifest: Manifest) -> list[str]:
    """Returns a note for each feature with classes that occur only a few times."""
    if is_sample(manifest):
        return []
    lines = []
    for feature in manifest.dataset_schema.class_features:
        total = Counter[int]()
        for split in manifest.splits.values():
            total.update(split.classes.get(feature, {}))
        rare = sorted((count, label) for label, count in total.items() if 0 < count < _FEW)
        if rare:
            names = [f"{manifest.resolved.class_name(feature, k)} {n}" for n, k in rare]
            verb = "occurs" if len(rare) == 1 else "occur"
            what = f"{len(rare):,} of the {len(total):,} classes of {feature!r}"
            lines.append(f"note: {what} {verb} fewer than {_FEW} times ({_some(names)})")
    return lines


def class_drift_notes(manifest: Manifest) -> list[str]:
    """Returns a note for each feature whose classes differ from those of the base version."""
    if manifest.base is None:
        return []
    version = manifest.base.version
    return [
        f"note: classes of {feature!r} since base {version}: {'; '.join(_parts(drift))}"
        for feature, drift in manifest.base.classes.items()
    ]


def _parts(drift: ClassDrift) -> list[str]:
    shares = [f"{name} {old:.1%} → {new:.1%}" for name, old, new in drift.changed_examples]
    lists = (
        ("new", drift.added, drift.added_examples),
        ("gone", drift.gone, drift.gone_examples),
        ("with another share", drift.changed, shares),
    )
    return [f"{n:,} {what} ({_some(names, n)})" for what, n, names in lists if n]


def _some(names: Sequence[str], number: int | None = None) -> str:
    more = (number or len(names)) > _SHOWN_CLASSES
    return ", ".join(names[:_SHOWN_CLASSES]) + ", …" * more
