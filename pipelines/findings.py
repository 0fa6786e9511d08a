"""The findings of a run, which every view shows: terminal, run.json, log, report, dataset card.

To add a finding, write a function from `Outcome` to `Finding`s, and add it to `_FINDERS`; nothing
else changes. What it needs reaches the manifest in one of these ways:

- noticed on the driver, before rows are read: `SourceEntry.findings` has it as a `Finding`;
- counted by readers: they yield `SkippedInput.named(KIND, names)`; `SEVERITIES[KIND]` makes it a
  note or a warning;
- anything else: a statistic of its own in the manifest.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.pipelines.label_findings import class_names, doubtful_labels, folded
from recordmill.schemas import layout
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import (
    Finding,
    Severity,
    counted,
    counted_kind,
    finding,
    has,
    images_are,
    some,
)
from recordmill.schemas.manifest import ClassDrift, Manifest
from recordmill.schemas.masking import masked_values
from recordmill.schemas.plan import SourceEntry
from recordmill.schemas.records import (
    LOST,
    NOTED,
    OUTSIDE_CLASSES,
    OUTSIDE_SAMPLE,
    RENAMED,
    UNMATCHED_LABELS,
    UNUSED_IMAGES,
    WARNED,
)
from recordmill.schemas.statistics import ISSUES, Conflicts, Leakage, Pair
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.images.geometry import CHANGES, CLIPPED, HINTS, TINY
from recordmill.transforms.functional.sources.tree import NO_SPLIT, SEVERAL_SPLITS, SHARED_LABELS

# Kinds of counted inputs that deserve attention, although their rows were read. The kind is worded
# so that its number can precede it: "images whose boxes …".
SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys((NO_SPLIT, SEVERAL_SPLITS, SHARED_LABELS, *WARNED), "warning"),
    **dict.fromkeys(NOTED, "note"),
}

# Skipped images in formats that are not read, with what to do
_UNREAD = {k.files: k.remedy.rstrip(".") for k in sniffing.FOREIGN.values() if k.is_image}
# Labels that are lost; those of a table are a note, because it often has those of more images.
_LOST: dict[str, Severity] = {**dict.fromkeys(LOST, "warning"), UNMATCHED_LABELS: "note"}
# The folders with lists of some kinds of skipped inputs.
_LISTS = {UNMATCHED_LABELS: layout.UNMATCHED_LABELS, UNUSED_IMAGES: layout.UNMATCHED_IMAGES}

_FINITE = "leave the fields empty, for default: in a schema, or their rows out with --where"
_CHECK_BOXES = "correct annotation files; for tables, set --boxes units=normalized,order=xywh"
_SHOWN_LEAKS = 10  # pairs of splits that share images: 300 splits have 44,850 pairs
_SHOWN_PAIRS = 2
_TOLERANCE = 0.2  # the part of its asked share by which a split may differ
_SPLITS = {"training": "train", "testing": "test"}  # names that mean the same as others
_SPLITS |= dict.fromkeys(("val", "validation", "dev"), "valid")
_FEWER_SHARDS = "Lower --num_shards, or give --shard_size a unit, as in 128MiB."
_FEW_SHARDS = 10  # empty shards that a small dataset may have by chance
_FEW = 10  # the fewest images per label that Vertex AI accepts for training
_UNEVEN_RATIO = 10  # of the largest to the smallest class

_DEDUPLICATE = "--deduplicate content keeps one row of each image"
_SAME_SPLIT = (
    "a row's own split, and that of its key in --base, override that of its group: set the same "
    "split in all rows of a group"
)
_OWN_SPLIT = (
    "a row's own split, and that of its key in --base, override --near_duplicates keep_together; "
    "images that were not compared can be in any split"
)
_DROP = "--near_duplicates drop keeps one of them"
_TOGETHER = "--near_duplicates keep_together keeps them in one split, and drop keeps one of them"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run; for a dataset that is opened later, the manifest alone."""

    manifest: Manifest
    skipped_names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # first ones, by kind
    linked: int = 0  # shards taken from the base version without reading them

    @property
    def is_sample(self) -> bool:
        """Whether rows are a sample, whose splits and classes are those of all rows, by chance."""
        return self.manifest.config.get("sample") is not None

    @property
    def class_features(self) -> tuple[str, ...]:
        """The features with class labels."""
        return self.manifest.dataset_schema.class_features

    def labels(self, feature: str) -> Counter[int]:
        """Returns the number of labels of a feature by class id, in all splits."""
        total = Counter[int]()
        for split in self.manifest.splits.values():
            total.update(split.classes.get(feature, {}))
        return total


def source_findings(source: SourceEntry) -> Iterator[Finding]:
    """Yields the descriptions of recognized inputs, and the findings of their probes."""
    yield from (finding("info", "recognized", text) for text in source.recognized)
    yield from source.findings


def _dropped_rows(outcome: Outcome) -> Iterator[Finding]:
    if number := outcome.manifest.input.duplicates:
        text = f"dropped: {counted(number, 'row')} with the image of another row"
        text += ", or a similar one" * (outcome.manifest.config.get("near_duplicates") == "drop")
        yield finding("info", "dropped_rows", text, figures={"rows": number})


def _skipped_inputs(outcome: Outcome) -> Iterator[Finding]:
    manifest, names = outcome.manifest, outcome.skipped_names
    numbers, rows = manifest.input.asides, manifest.input.rows
    return skipped(numbers, names, rows, manifest.config, manifest.dataset_schema, _LISTS)


def skipped(
    numbers: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
    rows: int,  # that were read, or are in the sample
    options: Mapping[str, Any],
    schema: Schema,
    lists: Mapping[str, str] = MappingProxyType({}),  # the folders with lists of some kinds
) -> Iterator[Finding]:
    """Yields each kind of skipped input, by number and first names, and the effects of options.

    >>> numbers, schema = {OUTSIDE_SAMPLE: 993, "files": 2}, Schema(every_column=True)
    >>> found = skipped(numbers, {"files": ["a", "b"]}, 7, {"sample": "1%"}, schema)
    >>> [one.text for one in found]
    ['sample 1%: 7 of 1,000 rows', 'skipped: files (2: a, b)']
    """
    sample, rename = options.get("sample"), options.get("rename") or {}
    renames = {RENAMED.format(*names): names for names in rename.items()}
    if sample is not None:
        total = rows + numbers.get(OUTSIDE_SAMPLE, 0)
        text = f"sample {sample}: {rows:,} of {counted(total, 'row')}"
        yield finding("info", "sample", text, figures={"rows": rows, "of": total})
    for what, number in numbers.items():
        if what == OUTSIDE_SAMPLE or what in renames:
            continue
        named, figures = tuple(names.get(what, ())), {"number": number}
        shown = some(named, number, len(named)) if named else ""
        if what in SEVERITIES:
            text = f"{counted_kind(number, what)}{f' ({shown})' if shown else ''}"
            yield finding(SEVERITIES[what], "counted", text, examples=named, figures=figures)
        else:
            of = f" of {some(schema.class_features)}" if what == OUTSIDE_CLASSES else ""
            listed = f", listed in {lists[what]}/" if what in lists else ""
            text = f"skipped: {what}{of} ({number:,}{f': {shown}' if shown else listed})"
            hint = _UNREAD.get(what, "")
            severity: Severity = _LOST.get(what, "warning" if hint else "info")
            yield finding(severity, "skipped", text, hint, examples=named, figures=figures)
    features = tuple(schema.label_features)
    for option, (old, new) in renames.items():
        label = f"the label {old!r} in {some(features)}"
        if number := numbers.get(option, 0):
            text = f"{counted(number, 'row')} with {label}, renamed to {new!r}"
            yield finding("note", "renamed", text, figures={"rows": number})
        else:
            yield finding("warning", "unused_name", f"{option}: no row has {label}")
    yield from _several_features("--rename" if rename else "", features)
    limit = options.get("per_class")
    yield from _several_features(limit and f"--per_class {limit}", schema.class_features)


def _several_features(option: str | None, features: Sequence[str]) -> Iterator[Finding]:
    if option and len(features) > 1:
        text = f"{option} applies to each feature with classes: {', '.join(features)}"
        hint = "For one of them, set --schema to one in which the others have no classes"
        yield finding("note", "several_class_features", text, hint, examples=features)


def _encoded_images(outcome: Outcome) -> Iterator[Finding]:
    settings = outcome.manifest.dataset_schema.image
    if number := sum(n for how, n in outcome.manifest.images.items() if " to jpeg" in how):
        text = f"encoded: {counted(number, 'image')} as JPEG with quality {settings.quality}"
        text += "; --image format=png resizes without further loss" * (settings.format != "jpeg")
        yield finding("info", "encoded", text, figures={"images": number})


def _changed_values(outcome: Outcome) -> Iterator[Finding]:
    images = outcome.manifest.images
    window = outcome.manifest.dataset_schema.image.window or (0, 0)
    texts: dict[str, tuple[str, Severity]] = {
        "window": ("mapped by the window {:g}:{:g}", "info"),
        "rescaled per image": ("rescaled per image, so that equal values differ", "note"),
        "8 bits": ("reduced to 8 bits per sample", "info"),
        sniffing.OUTSIDE_WINDOW: ("clipped to the window {:g}:{:g} in some pixels", "note"),
        sniffing.FIRST_FRAME: ("the first of several frames or pages", "note"),
        sniffing.SIXTEEN_BITS: ('of 16 bits; readers return 8 without dtype="uint16"', "note"),
    }
    for change, (text, severity) in texts.items():
        if number := sum(n for how, n in images.items() if change in how.split(", ")):
            what = f"{images_are(number)} {text.format(*window)}"
            yield finding(severity, "values", what, figures={"images": number})


def _base_version(outcome: Outcome) -> Iterator[Finding]:
    manifest, base = outcome.manifest, outcome.manifest.base
    if base is None:
        return
    kept, new, gone = (sum(counts.values()) for counts in (base.kept, base.new, base.gone))
    is_same = not new + gone and manifest.config.get("append")
    # A row that is neither rejected nor dropped nor unchanged is one of a record that was kept.
    if is_same and manifest.input.rows == manifest.input.converted:
        yield no_rows(base.version)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    # Shards after those of the base have the new rows.
    splits = ((base.kept.get(name, 0), split.shards) for name, split in manifest.splits.items())
    old = sum(total <= of for of, found in splits for total in accumulate(s.records for s in found))
    is_exact = manifest.config.get("append") or layout.REMOVAL in manifest.sidecars
    or_changed = not is_exact and base.shards_unchanged < old
    # A record that an increment replaces is one of those that are gone, and of the new ones.
    changed = min(new, gone) if manifest.config.get("on_conflict") == "update" else 0
    text = f"base {base.version}: {kept:,} records kept{' or changed' * or_changed}, "
    text += f"{new - changed:,} new, " + f"{changed:,} changed, " * (changed > 0)
    text += f"{gone - changed:,} gone; {base.shards_unchanged:,} of {shards:,} shards are "
    text += f"unchanged ({outcome.linked:,} not even read)"
    figures = {"kept": kept, "new": new, "gone": gone, "linked": outcome.linked}
    yield finding("info", "base_version", text, figures=figures)


def no_rows(base: str) -> Finding:
    """Returns the finding of an increment without rows."""
    return finding("note", "no_rows", f"the input has no rows, so the records are those of {base}")


class _Alike(NamedTuple):
    """How findings name images that are alike."""

    noun: str  # what is counted, in the singular
    of: str  # what follows it
    plural: str
    sign: str  # between two keys

    def counted(self, number: int) -> str:
        return counted(number, self.noun) + self.of

    def pairs(self, examples: Sequence[Pair]) -> str:
        return some([f"{one} {self.sign} {two}" for one, two in examples], shown=_SHOWN_PAIRS)


_IDENTICAL = _Alike("image", "", "images", "=")
_SIMILAR = _Alike("group", " of similar images", "similar images", "~")


def _identical_images(outcome: Outcome) -> Iterator[Finding]:
    content = outcome.manifest.content
    yield from _leakage("leakage", content.leaks, _IDENTICAL, _DEDUPLICATE)
    check = ". Check which label is right."
    yield from _conflicts("label_conflicts", content.conflicts, _IDENTICAL, check)
    check = "; one record of each was kept. Check its label."
    yield from _conflicts("dropped_label_conflicts", content.dropped_conflicts, _IDENTICAL, check)
    same = "the image of another record"
    yield from _duplicates("duplicates", content.duplicates, same, _DEDUPLICATE)


def _similar_images(outcome: Outcome) -> Iterator[Finding]:
    near = outcome.manifest.near_duplicates
    if near is None:
        return
    hints = {"report": _TOGETHER, "keep_together": _OWN_SPLIT}
    hint = hints.get(str(outcome.manifest.config.get("near_duplicates")), "")
    yield from _leakage("similar_leakage", near.leaks, _SIMILAR, hint)
    yield from _conflicts("similar_label_conflicts", near.conflicts, _SIMILAR)
    alike = "in similar form the image of another record"
    yield from _duplicates("similar", near.duplicates, alike, _DROP if hint == _OWN_SPLIT else hint)
    if near.full_buckets:
        text = f"{near.full_buckets:,} sets of images with equal low frequencies are too large to "
        text += "compare all pairs; some similar images may be missing"
        yield finding("note", "similar_not_compared", text, figures={"sets": near.full_buckets})
    if near.overflow:
        text = "too many images are similar to be grouped; none of them is listed"
        yield finding("note", "similar_not_grouped", text)


def _leakage(
    kind: str, leaks: Sequence[Leakage], alike: _Alike, hint: str = ""
) -> Iterator[Finding]:
    """Yields the first pairs of splits that share images, and the number of the others."""
    for leak in leaks[:_SHOWN_LEAKS]:
        one, two = leak.splits
        text = f"{one} and {two} share {alike.counted(leak.images)} ({alike.pairs(leak.examples)})"
        found = partial(finding, splits=leak.splits, examples=leak.examples)
        figures = {"images": leak.images, "records": leak.records}
        yield found("warning", kind, text, hint, figures=figures)
    if (hidden := len(leaks) - _SHOWN_LEAKS) > 0:
        text = f"{counted(hidden, 'more pair')} of splits share {alike.plural}"
        yield finding("warning", kind, text, hint, figures={"pairs": hidden})


def _conflicts(kind: str, found: Conflicts, alike: _Alike, check: str = "") -> Iterator[Finding]:
    if number := found.images:
        what = f"{alike.counted(number)} {has(number)} more than one label"
        text = f"{what} ({alike.pairs(found.examples)}){check}"
        figures = {"images": number, "records": found.records}
        yield finding("warning", kind, text, examples=found.examples, figures=figures)


def _duplicates(
    kind: str, records: Mapping[str, int], what: str, hint: str = ""
) -> Iterator[Finding]:
    for split, number in records.items():
        verb = "repeats" if number == 1 else "repeat"
        text = f"{counted(number, 'record')} of {split} {verb} {what} of {split}"
        yield finding("note", kind, text, hint, splits=(split,), figures={"records": number})


def _image_quality(outcome: Outcome) -> Iterator[Finding]:
    quality = outcome.manifest.quality
    for name, issue in quality.issues.items() if quality else ():
        keys = tuple(example.key for _, example in issue.examples)
        number, splits = sum(issue.images.values()), tuple(issue.images)
        text = f"{images_are(number)} {ISSUES[name].text} ({some(keys, shown=_SHOWN_PAIRS)})"
        kind, figures = f"quality_{name}", {"images": number}
        yield finding("note", kind, text, splits=splits, examples=keys, figures=figures)


def _changed_annotations(outcome: Outcome) -> Iterator[Finding]:
    for change, text in CHANGES.items():
        if number := outcome.manifest.images.get(change, 0):
            is_common = change == CLIPPED and 2 * number > outcome.manifest.input.records
            hint = _CHECK_BOXES if is_common else HINTS.get(change, "")
            severity: Severity = "warning" if hint else "note"
            what, figures = f"{counted(number, 'image')} {text}", {"images": number}
            yield finding(severity, change.replace(" ", "_"), what, hint, figures=figures)


def _not_finite(outcome: Outcome) -> Iterator[Finding]:
    for name, number in outcome.manifest.not_finite.items():
        what = f"{counted(number, 'value')} of {name!r} {'is' if number == 1 else 'are'}"
        text, figures = f"{what} not finite (NaN or infinite)", {"values": number}
        yield finding("warning", "not_finite", text, _FINITE, feature=name, figures=figures)


def _tiny_boxes(outcome: Outcome) -> Iterator[Finding]:
    """Yields a warning if the median box covers less than 0.01 % of its image."""
    features = outcome.manifest.dataset_schema.features
    # The number of boxes is that of their labels.
    label = next((name for name, f in features.items() if f.per_box and f.classes), "")
    boxes, tiny = outcome.labels(label).total(), outcome.manifest.images.get(TINY, 0)
    if 2 * tiny > boxes > 0:
        text = f"{tiny:,} of {boxes:,} boxes cover less than 0.01 % of their image"
        figures = {"tiny": tiny, "boxes": boxes}
        yield finding("warning", "tiny_boxes", text, _CHECK_BOXES, feature=label, figures=figures)


def _shards_of_splits(outcome: Outcome) -> Iterator[Finding]:
    splits = outcome.manifest.splits
    return empty_shards({n: [shard.records for shard in s.shards] for n, s in splits.items()})


def empty_shards(records: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """Yields each split most of whose shards are empty, by the records of each shard."""
    for name, shards in records.items():
        empty = sum(count == 0 for count in shards)
        if empty > _FEW_SHARDS and 2 * empty > len(shards):
            text = f"{empty:,} of the {len(shards):,} shards of {name!r} are empty. {_FEWER_SHARDS}"
            figures = {"empty": empty, "shards": len(shards)}
            yield finding("warning", "empty_shards", text, splits=(name,), figures=figures)


def _group_leakage(outcome: Outcome) -> Iterator[Finding]:
    leaks = outcome.manifest.group_leaks
    if leaks is None:
        return
    column = outcome.manifest.config["group_column"]
    shown = [f"{group} in {' and '.join(splits)}" for group, splits in leaks.examples]
    verb = "is" if leaks.groups == 1 else "are"
    what = f"{counted(leaks.groups, 'group')} of {column!r} {verb} in more than one split"
    text = f"{what} ({some(shown, leaks.groups, len(shown))})"
    groups, figures = [(g, *splits) for g, splits in leaks.examples], {"groups": leaks.groups}
    yield finding("warning", "group_leakage", text, _SAME_SPLIT, examples=groups, figures=figures)


def _alike_splits(outcome: Outcome) -> Iterator[Finding]:
    alike = defaultdict[str, list[str]](list)
    for name in outcome.manifest.ordered_splits:
        alike[_SPLITS.get(written := folded(name), written)].append(name)
    if found := [", ".join(names) for names in alike.values() if len(names) > 1]:
        text = f"splits whose names mean the same: {'; '.join(found[:_SHOWN_LEAKS])}"
        hint = "if they are one split, give it one name in the input"
        yield finding("warning", "alike_splits", text, hint, examples=found)


def _missed_shares(outcome: Outcome) -> Iterator[Finding]:
    manifest = outcome.manifest
    weights, shares = manifest.config.get("splits") or {}, manifest.shares or {}
    empty = [name for name in weights if float(weights[name]) > 0 and name not in manifest.splits]
    for name in empty:
        text = f"no row was assigned to split {name!r}; it was not written"
        yield finding("note", "empty_split", text, splits=(name,))
    if outcome.is_sample:
        return
    by_hash = manifest.config.get("split_method") == "hash"
    remedy = ". For exact shares, set --split_method exact." if by_hash else ""
    records = sum(split.records for split in manifest.splits.values())
    for name, share in shares.items():
        difference = abs(share.actual - share.asked)
        is_rounded = difference * records < 1  # as all shares are of few records
        # Two standard deviations of the records that a hash assigns to the split.
        chance = 2 * math.sqrt(share.asked * (1 - share.asked) / max(records, 1)) * by_hash
        is_missed = difference > max(_TOLERANCE * share.asked, chance)
        if name not in empty and is_missed and not is_rounded:
            what = f"{name} has {share.actual:.1%} of the records; expected {share.asked:.1%}"
            figures = {"actual": share.actual, "asked": share.asked}
            yield finding("warning", "missed_share", what + remedy, splits=(name,), figures=figures)


def _stratification(outcome: Outcome) -> Iterator[Finding]:
    """Yields the largest difference of stratified splits from the share of a class."""
    manifest, shares = outcome.manifest, outcome.manifest.shares
    is_stratified = manifest.config.get("split_method") == "stratified"
    if not is_stratified or not shares or outcome.is_sample:
        return
    for feature in outcome.class_features:
        total, splits = outcome.labels(feature), manifest.splits
        counts = {
            name: splits[name].classes.get(feature, {}) if name in splits else {} for name in shares
        }
        differences = [
            (abs(counts[name].get(label, 0) - share.asked * total[label]), label, name)
            for name, share in shares.items()
            for label in total
        ]
        most, label, name = max(differences, default=(0, 0, ""))
        if most >= 1:  # rounding alone stays below one record
            expected = shares[name].asked * total[label]
            class_name = manifest.resolved.class_name(feature, label)
            text = (
                f"the classes of {feature!r} miss their shares by up to {most:.1f} records "
                f"({class_name} in {name}: {counts[name].get(label, 0):,}, share {expected:,.1f})"
            )
            found = partial(finding, splits=(name,), feature=feature, examples=(class_name,))
            yield found("note", "stratification", text, figures={"difference": most})


def _missing_classes(outcome: Outcome) -> Iterator[Finding]:
    """Yields each split that lacks classes, of those with a record for each split."""
    manifest = outcome.manifest
    splits = {name: split for name, split in manifest.ordered_splits.items() if split.records}
    for feature in () if outcome.is_sample else outcome.class_features:
        total = outcome.labels(feature)
        possible = sorted(label for label in total if total[label] >= len(splits))
        for name, split in splits.items():
            counts = split.classes.get(feature, {})
            missing = [label for label in possible if not counts.get(label)]
            found = partial(finding, splits=(name,), feature=feature)
            if total and not counts:
                text = f"no record of {name} has a label in {feature!r}"
                yield found("note", "unlabeled_split", text, figures={"records": split.records})
            elif missing:
                names = [manifest.resolved.class_name(feature, label) for label in missing]
                classes = manifest.resolved.number_of_classes(feature) or len(total)
                enough = " with a record for each split" if len(possible) < classes else ""
                what = f"{len(names):,} of the {len(possible):,} classes of {feature!r}{enough}"
                text = f"{name} lacks {what} ({some(names)})"
                figures = {"missing": len(names), "classes": classes}
                yield found("warning", "missing_classes", text, examples=names, figures=figures)


def _class_sizes(outcome: Outcome) -> Iterator[Finding]:
    manifest = outcome.manifest
    for feature in () if outcome.is_sample else outcome.class_features:
        total, names = outcome.labels(feature), manifest.classes.get(feature, ())
        found = partial(finding, feature=feature)
        present = sorted((count, label) for label, count in total.items() if count)
        ids = manifest.dataset_schema.features[feature]
        first = ids.label_offset  # 0 is the background
        absent = [n for label, n in enumerate(names) if label >= first and not total[label]]
        if absent and any(split.records for split in manifest.splits.values()):
            what = f"{counted(len(absent), 'class')} of {feature!r} without any record"
            text = f"{what} ({some(absent)})"
            figures = {"absent": len(absent), "classes": len(names)}
            hint = "" if manifest.base else "--classes FILE with the others leaves them out"
            # As with ids that count from 1, if names are not those of the source.
            are_ids = manifest.config.get("classes") or manifest.config.get("num_classes")
            if hint and are_ids and absent == [names[first]] and not ids.first_label:
                hint = f"if labels are ids from 1, set --first_label 1; otherwise, {hint}"
            yield found("warning", "absent_classes", text, hint, examples=absent, figures=figures)
        name_of = partial(manifest.resolved.class_name, feature)
        if rare := [(name_of(label), str(count)) for count, label in present if count < _FEW]:
            classes = manifest.resolved.number_of_classes(feature) or len(total)
            what = f"{len(rare):,} of the {classes:,} classes of {feature!r}"
            verb, shown = "occurs" if len(rare) == 1 else "occur", some([*map(": ".join, rare)])
            text = f"{what} {verb} fewer than {_FEW} times ({shown})"
            figures = {"rare": len(rare), "classes": classes}
            yield found("note", "rare_classes", text, examples=rare, figures=figures)
        if present and (largest := present[-1][0]) >= _UNEVEN_RATIO * (smallest := present[0][0]):
            sizes = f"the largest has {counted(largest, 'label')}, the smallest {smallest:,}"
            text = f"class sizes of {feature!r} are uneven: {sizes}"
            figures = {"largest": largest, "smallest": smallest}
            yield found("note", "uneven_classes", text, figures=figures)


def _class_drift(outcome: Outcome) -> Iterator[Finding]:
    base = outcome.manifest.base
    if base is None:
        return
    for feature, drift in base.classes.items():
        text = f"classes of {feature!r} since base {base.version}: {'; '.join(_parts(drift))}"
        figures = {"added": drift.added, "gone": drift.gone, "changed": drift.changed}
        yield finding("note", "class_drift", text, feature=feature, figures=figures)


def _parts(drift: ClassDrift) -> list[str]:
    shares = [f"{name} {old:.1%} → {new:.1%}" for name, old, new in drift.changed_examples]
    lists = (
        ("new", drift.added, drift.added_examples),
        ("gone", drift.gone, drift.gone_examples),
        ("with another share", drift.changed, shares),
    )
    return [f"{n:,} {what} ({some(names, n)})" for what, n, names in lists if n]


def _class_names(outcome: Outcome) -> Iterator[Finding]:
    manifest = outcome.manifest
    return class_names(manifest.classes, manifest.source or SourceEntry(), manifest.config)


def _doubtful_labels(outcome: Outcome) -> Iterator[Finding]:
    manifest = outcome.manifest
    labels = {feature: outcome.labels(feature) for feature in outcome.class_features}
    schema, records = manifest.dataset_schema, manifest.input.records
    columns = manifest.config.get("columns") or {}
    return doubtful_labels(schema, manifest.classes, labels, records, columns)


# In the order in which the terminal prints their findings, after those of the source.
_FINDERS: tuple[Callable[[Outcome], Iterable[Finding]], ...] = (
    _dropped_rows, _skipped_inputs, _shards_of_splits, _encoded_images, _changed_values,
    _group_leakage, _identical_images, _similar_images, _image_quality,
    _changed_annotations, _not_finite, _tiny_boxes, _alike_splits, _missed_shares, _stratification,
    _missing_classes, _class_sizes, _class_drift, _class_names, _doubtful_labels,
    _base_version,
)  # fmt: skip


def findings_of(outcome: Outcome) -> tuple[Finding, ...]:
    """Returns the findings of a run, with secrets masked."""
    found = [*source_findings(outcome.manifest.source or SourceEntry())]
    found += (each for finder in _FINDERS for each in finder(outcome))
    return tuple(Finding.model_validate(masked_values(f.model_dump())) for f in found)
