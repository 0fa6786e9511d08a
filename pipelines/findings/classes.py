"""Findings on classes: their sizes, their ids, and how they differ from the base version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas.findings import Finding, Severity, counted, some
from recordmill.schemas.manifest import ClassDrift
from recordmill.schemas.plan import SourceEntry
from recordmill.schemas.statistics import EXAMPLES

# The fewest images per label that Vertex AI accepts for training.
_FEW = 10

# Ratio of the largest to the smallest class above which class sizes are uneven.
_UNEVEN_RATIO = 10

# What programs write as text for a missing value.
_NO_VALUES = frozenset({"nan", "none", "null", "<na>", "n/a", "nat"})

_NEGATIVE = "class ids below 0, which default: -1 in a schema declares as no label"

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?", re.ASCII)


def class_sizes(outcome: Outcome) -> Iterator[Finding]:
    """Yields the classes of each feature that do not occur, or rarely, and uneven sizes."""
    manifest = outcome.manifest
    for feature in () if outcome.is_sample else manifest.dataset_schema.class_features:
        total = Counter[int]()
        for split in manifest.splits.values():
            total.update(split.classes.get(feature, {}))
        present = sorted((count, label) for label, count in total.items() if count)
        names = manifest.classes.get(feature, ())
        absent = [name for label, name in enumerate(names) if not total[label]]
        if absent and any(split.records for split in manifest.splits.values()):
            what = "1 class" if len(absent) == 1 else f"{len(absent):,} classes"
            yield Finding(
                kind="absent_classes",
                severity="warning",
                text=f"{what} of {feature!r} without any record ({some(absent)})",
                feature=feature,
                figures={"absent": len(absent), "classes": len(names)},
                examples=tuple(absent[:EXAMPLES]),
            )
        rare = [
            (manifest.resolved.class_name(feature, label), str(count))
            for count, label in present
            if count < _FEW
        ]
        if rare:
            verb = "occurs" if len(rare) == 1 else "occur"
            what = f"{len(rare):,} of the {len(total):,} classes of {feature!r}"
            shown = some([" ".join(pair) for pair in rare])
            yield Finding(
                kind="rare_classes",
                severity="note",
                text=f"{what} {verb} fewer than {_FEW} times ({shown})",
                feature=feature,
                figures={"rare": len(rare), "classes": len(total)},
                examples=tuple(rare[:EXAMPLES]),
            )
        if present and (largest := present[-1][0]) >= _UNEVEN_RATIO * (smallest := present[0][0]):
            sizes = f"the largest has {counted(largest, 'label')}, the smallest {smallest:,}"
            yield Finding(
                kind="uneven_classes",
                severity="note",
                text=f"class sizes of {feature!r} are uneven: {sizes}",
                feature=feature,
                figures={"largest": largest, "smallest": smallest},
            )


def class_drift(outcome: Outcome) -> Iterator[Finding]:
    """Yields the features whose classes differ from those of the base version."""
    base = outcome.manifest.base
    if base is None:
        return
    for feature, drift in base.classes.items():
        text = f"classes of {feature!r} since base {base.version}: {'; '.join(_parts(drift))}"
        figures = {"added": drift.added, "gone": drift.gone, "changed": drift.changed}
        yield Finding(
            kind="class_drift", severity="note", text=text, feature=feature, figures=figures
        )


def _parts(drift: ClassDrift) -> list[str]:
    shares = [f"{name} {old:.1%} → {new:.1%}" for name, old, new in drift.changed_examples]
    lists = (
        ("new", drift.added, drift.added_examples),
        ("gone", drift.gone, drift.gone_examples),
        ("with another share", drift.changed, shares),
    )
    return [f"{n:,} {what} ({some(names, n)})" for what, n, names in lists if n]


def class_names(outcome: Outcome) -> Iterator[Finding]:
    """Yields class ids that differ from the source, and class names that look like numbers."""
    manifest = outcome.manifest
    for feature, names in manifest.classes.items():
        if manifest.source and feature in manifest.source.class_ids:
            yield from class_ids(feature, names, manifest.source)
            # One input has ids with names, and another may have ids without names.
            yield from _numeric_names(feature, names, manifest.source.class_ids[feature])
        elif not (manifest.config.get("classes") or manifest.config.get("num_classes")):
            yield from _numeric_names(feature, names)


def class_ids(feature: str, names: Sequence[str], source: SourceEntry) -> Iterator[Finding]:
    """Yields the class ids of a feature that are not those of the source; names are in id order.

    >>> source = SourceEntry(class_ids={"label": {"cat": 0, "dog": 1}})
    >>> list(class_ids("label", ("cat", "dog"), source))
    []
    """
    declared = source.class_ids.get(feature, {})
    if conflict := source.conflicts.get(feature):
        text = f"{conflict}. The classes of {feature!r} are in the order of the files."
        yield Finding(kind="class_id_conflict", severity="note", text=text, feature=feature)
    changed = [(name, id_) for id_, name in enumerate(names) if declared.get(name, id_) != id_]
    if changed:
        shown = some([f"{name} {declared[name]} → {id_}" for name, id_ in changed])
        verb = "differs" if len(changed) == 1 else "differ"
        # COCO counts its categories from 1.
        is_offset = all(declared[name] == id_ + 1 for name, id_ in changed)
        is_all = len(changed) == len(names)
        yield Finding(
            kind="class_ids",
            severity="note",
            text=f"{counted(len(changed), 'class id')} of {feature!r} {verb} from the source "
            f"({shown}), because ids count from 0 without gaps",
            hint="--label_offset 1 keeps the ids of the source" if is_offset and is_all else "",
            feature=feature,
            figures={"changed": len(changed), "classes": len(names)},
            examples=tuple((n, str(declared[n]), str(i)) for n, i in changed[:EXAMPLES]),
        )


def doubtful_labels(outcome: Outcome) -> Iterator[Finding]:
    """Yields class names that differ in case only or look like no value, and negative ids."""
    manifest = outcome.manifest
    for feature in manifest.dataset_schema.class_features:
        names = manifest.classes.get(feature, ())
        folded = Counter(name.casefold() for name in names)
        found = {
            label for one in manifest.splits.values() for label in one.classes.get(feature, ())
        }
        if manifest.dataset_schema.features[feature].default is not None:
            found.clear()
        alike = [name for name in names if folded[name.casefold()] > 1]
        missing = [name for name in names if name.casefold() in _NO_VALUES]
        negative = [str(label) for label in sorted(found) if label < 0]
        kinds: tuple[tuple[str, Severity, str, list[str]], ...] = (
            ("alike_classes", "note", "class names that differ only in case", alike),
            (
                "missing_value_classes",
                "note",
                "class names that look like a missing value",
                missing,
            ),
            ("negative_classes", "warning", _NEGATIVE, negative),
        )
        for kind, severity, what, examples in kinds:
            if examples:
                yield Finding(
                    kind=kind,
                    severity=severity,
                    text=f"{feature!r} has {what} ({some(examples)})",
                    feature=feature,
                    examples=tuple(examples[:EXAMPLES]),
                )


def _numeric_names(
    feature: str, names: Sequence[str], declared: Collection[str] = ()
) -> Iterator[Finding]:
    """Yields class names that look like numbers, whose ids may differ; names are in id order.

    >>> list(_numeric_names("label", ("cat", "dog")))
    []
    """
    numbers = [name for name in names if _NUMBER.fullmatch(name) and name not in declared]
    if numbers:
        chosen = set(numbers)
        other = [(n, id_) for id_, n in enumerate(names) if n in chosen and n != str(id_)]
        ids = f", and the id of {other[0][0]!r} is {other[0][1]}" if other else ""
        share = f"{len(numbers):,} of the {len(names):,}"
        yield Finding(
            kind="numeric_class_names",
            severity="note",
            text=f"{share} class names of {feature!r} are numbers{ids}. If the labels are ids, "
            "write all of them as plain integers (7, not 07 or text), or set --classes.",
            feature=feature,
            figures={"numbers": len(numbers), "classes": len(names)},
            examples=tuple(numbers[:EXAMPLES]),
        )
