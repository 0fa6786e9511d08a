"""Findings on how records are distributed over splits and shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from recordmill.pipelines.findings.outcome import Outcome
from recordmill.schemas.findings import Finding, counted, some
from recordmill.schemas.statistics import EXAMPLES

# The part of its asked share by which a split may differ before it is a warning.
_TOLERANCE = 0.2

# Empty shards that a small dataset may have by chance.
_FEW_SHARDS = 10


def shards_of_splits(outcome: Outcome) -> Iterator[Finding]:
    """Yields each split most of whose shards are empty."""
    splits = outcome.manifest.splits
    return empty_shards({n: [shard.records for shard in s.shards] for n, s in splits.items()})


def empty_shards(records: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """Yields each split most of whose shards are empty, by the records of each shard."""
    for name, shards in records.items():
        empty = sum(count == 0 for count in shards)
        if empty > _FEW_SHARDS and 2 * empty > len(shards):
            yield Finding(
                kind="empty_shards",
                severity="warning",
                text=f"{empty:,} of the {len(shards):,} shards of {name!r} are empty. "
                "Lower --num_shards, or give --shard_size a unit, as in 128MiB.",
                splits=(name,),
                figures={"empty": empty, "shards": len(shards)},
            )


def group_leakage(outcome: Outcome) -> Iterator[Finding]:
    """Yields the groups that are in more than one split."""
    leaks = outcome.manifest.group_leaks
    if leaks is None:
        return
    column = outcome.manifest.config["group_column"]
    examples = [f"{group} in {' and '.join(splits)}" for group, splits in leaks.examples]
    shown = some(examples, leaks.groups, len(examples))
    verb = "is" if leaks.groups == 1 else "are"
    what = f"{counted(leaks.groups, 'group')} of {column!r} {verb} in more than one split"
    yield Finding(
        kind="group_leakage",
        severity="warning",
        text=f"{what} ({shown})",
        hint="a row's own split, and that of its key in --base, override that of its group: set "
        "the same split in all rows of a group",
        figures={"groups": leaks.groups},
        examples=tuple((group, *splits) for group, splits in leaks.examples),
    )


def missed_shares(outcome: Outcome) -> Iterator[Finding]:
    """Yields the splits without rows, and those that miss their share."""
    manifest = outcome.manifest
    weights, shares = manifest.config.get("splits") or {}, manifest.shares or {}
    empty = [name for name in weights if float(weights[name]) > 0 and name not in manifest.splits]
    for name in empty:
        text = f"no row was assigned to split {name!r}; it was not written"
        yield Finding(kind="empty_split", severity="note", text=text, splits=(name,))
    if outcome.is_sample:
        return
    by_hash = manifest.config.get("split_method") == "hash"
    remedy = ". For exact shares, set --split_method exact." if by_hash else ""
    for name, share in shares.items():
        if name not in empty and abs(share.actual - share.asked) > _TOLERANCE * share.asked:
            what = f"{name} has {share.actual:.1%} of the records; expected {share.asked:.1%}"
            yield Finding(
                kind="missed_share",
                severity="warning",
                text=f"{what}{remedy}",
                splits=(name,),
                figures={"actual": share.actual, "asked": share.asked},
            )


def stratification(outcome: Outcome) -> Iterator[Finding]:
    """Yields the largest difference of stratified splits from the share of a class."""
    manifest, shares = outcome.manifest, outcome.manifest.shares
    is_stratified = manifest.config.get("split_method") == "stratified"
    if not is_stratified or not shares or outcome.is_sample:
        return
    for feature in manifest.dataset_schema.class_features:
        counts = {
            name: manifest.splits[name].classes.get(feature, {}) if name in manifest.splits else {}
            for name in shares
        }
        total = Counter[int]()
        for of_split in counts.values():
            total.update(of_split)
        differences = [
            (abs(counts[name].get(label, 0) - share.asked * total[label]), label, name)
            for name, share in shares.items()
            for label in total
        ]
        most, label, name = max(differences, default=(0, 0, ""))
        if most >= 1:  # rounding alone stays below one record
            expected, class_name = (
                shares[name].asked * total[label],
                manifest.resolved.class_name(feature, label),
            )
            yield Finding(
                kind="stratification",
                severity="note",
                text=f"the classes of {feature!r} miss their shares by up to {most:.1f} records "
                f"({class_name} in {name}: {counts[name].get(label, 0):,}, share {expected:,.1f})",
                splits=(name,),
                feature=feature,
                figures={"difference": most},
                examples=(class_name,),
            )


def missing_classes(outcome: Outcome) -> Iterator[Finding]:
    """Yields each split that lacks classes, although each split could have them.

    A class with fewer records than there are splits cannot be in each of them.
    """
    manifest = outcome.manifest
    if outcome.is_sample:
        return
    splits = [split for split in manifest.splits.values() if split.records]
    for feature in manifest.dataset_schema.class_features:
        total = Counter[int]()
        for split in splits:
            total.update(split.classes.get(feature, {}))
        for name, split in manifest.ordered_splits.items():
            counts = split.classes.get(feature, {})
            possible = (label for label in total if total[label] >= len(splits))
            missing = sorted(label for label in possible if not counts.get(label))
            if split.records and total and not counts:
                yield Finding(
                    kind="unlabeled_split",
                    severity="note",
                    text=f"no record of {name} has a label in {feature!r}",
                    splits=(name,),
                    feature=feature,
                    figures={"records": split.records},
                )
            elif split.records and missing:
                names = [manifest.resolved.class_name(feature, label) for label in missing]
                what = f"{len(names):,} of the {len(total):,} classes of {feature!r}"
                yield Finding(
                    kind="missing_classes",
                    severity="warning",
                    text=f"{name} lacks {what} ({some(names)})",
                    splits=(name,),
                    feature=feature,
                    figures={"missing": len(names), "classes": len(total)},
                    examples=tuple(names[:EXAMPLES]),
                )
