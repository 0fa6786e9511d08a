"""The summary of a run: a table of row counts, notes and warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas.manifest import BaseEntry, Manifest
from recordmill.schemas.statistics import Conflicts, DuplicateStats, Leakage

_SHOWN_PAIRS = 2
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?", re.ASCII)

# Limit for pairs of splits that share images: 300 splits have 44,850 pairs.
SHOWN_LEAKS = 10


def show_summary(terminal: Terminal, record: RunRecord, manifest: Manifest, directory: str) -> None:
    """Prints the row counts of each split, and notes on the dataset.

    Args:
        terminal: where to print.
        record: the record of the run.
        manifest: the manifest of the published dataset.
        directory: the folder of the dataset.
    """
    frames = ("frames",) if manifest.input.frames is not None else ()
    heads = ("split", "rows", *frames, "records", "rejected", "shards", "MiB")
    rows = []
    for name, split in manifest.splits.items():
        size = sum(shard.bytes for shard in split.shards) / 2**20
        written = (split.records,) if split.frames is None else (split.frames, split.records)
        counts = (split.rows, *written, split.rejected, len(split.shards))
        rows.append((name, *(f"{count:,}" for count in counts), f"{size:,.1f}"))
    if manifest.input.unplaced:
        unplaced = f"{manifest.input.unplaced:,}"
        rows.append(("(no split)", unplaced, *("0" for _ in frames), "0", unplaced, "", ""))
    terminal.table(heads, rows, right=range(1, len(heads)))
    terminal.lines(notes(manifest))
    if manifest.base:
        terminal.line(_base_note(manifest.base, record))
    if record.shards_reused:
        what = f"{record.shards_reused:,} of {record.shards:,} shards"
        terminal.line(f"resumed: {what} were finished by an earlier run")
    rate = f"{record.records:,} records in {record.seconds:,.1f} s"
    terminal.line(f"verified and published: {directory} ({rate})")


def notes(manifest: Manifest) -> list[str]:
    """Returns notes and warnings on a published dataset, in addition to its counts."""
    reasons = [f"{count:,} {reason}" for reason, count in manifest.input.reasons.items()]
    lines = [f"rejected: {', '.join(reasons)}"] if reasons else []
    if manifest.input.duplicates:
        lines.append(f"dropped: {manifest.input.duplicates:,} rows with the image of another row")
    lines += [f"skipped: {count:,} {what}" for what, count in manifest.input.asides.items()]
    return (
        lines
        + group_notes(manifest)
        + duplicate_notes(manifest.content)
        + split_and_class_notes(manifest)
    )


def split_and_class_notes(manifest: Manifest) -> list[str]:
    """Returns notes on splits without rows, and on class names that look like numbers."""
    weights = manifest.config.get("splits") or {}
    empty = [name for name in weights if float(weights[name]) > 0 and name not in manifest.splits]
    lines = [f"note: no row was assigned to split {name!r}; it was not written" for name in empty]
    for feature, names in manifest.classes.items():
        if not manifest.config.get("classes"):
            lines += number_notes(feature, names)
    return lines


def number_notes(feature: str, names: Sequence[str]) -> list[str]:
    """Returns a note on class names that look like numbers, whose class ids may differ from them.

    Args:
        feature: the feature with the classes.
        names: the class names in the order of their ids, as found in the table.

    >>> number_notes("label", ("cat", "dog"))
    []
    """
    numbers = {name for name in names if _NUMBER.fullmatch(name)}
    if not numbers:
        return []
    other = [(name, id_) for id_, name in enumerate(names) if name in numbers and name != str(id_)]
    ids = f", and the id of {other[0][0]!r} is {other[0][1]}" if other else ""
    share = f"{len(numbers):,} of the {len(names):,}"
    return [
        f"note: {share} class names of {feature!r} are numbers{ids}. If the labels are ids, write "
        "all of them as plain integers (7, not 07 or text), or set --classes."
    ]


def _base_note(base: BaseEntry, record: RunRecord) -> str:
    kept, new, gone = (sum(counts.values()) for counts in (base.kept, base.new, base.gone))
    return (
        f"base {base.version}: {kept:,} records kept, {new:,} new, {gone:,} gone; "
        f"{base.shards_unchanged:,} of {record.shards:,} shards are unchanged "
        f"({record.shards_linked:,} not even read)"
    )


def group_notes(manifest: Manifest) -> list[str]:
    """Returns a warning about groups that are in more than one split."""
    leaks = manifest.group_leaks
    if leaks is None:
        return []
    column = manifest.config["group_column"]
    verb = "is" if leaks.groups == 1 else "are"
    shown = ", ".join(f"{group} in {' and '.join(splits)}" for group, splits in leaks.examples)
    more = ", …" if leaks.groups > len(leaks.examples) else ""
    return [
        f"warning: {_count(leaks.groups, 'group')} of {column!r} {verb} in more than one split "
        f"({shown}{more})",
        "      (a row's own split, and that of its key in --base, override that of its group: set "
        "the same split in all rows of a group)",
    ]


def duplicate_notes(content: DuplicateStats) -> list[str]:
    """Returns notes and warnings on images that occur more than once."""
    lines = [_leak_note(leak) for leak in content.leaks[:SHOWN_LEAKS]]
    if (hidden := len(content.leaks) - SHOWN_LEAKS) > 0:
        lines.append(f"warning: {_count(hidden, 'more pair')} of splits share images")
    if content.conflicts.images:
        lines.append(f"warning: {_conflict_note(content.conflicts)}. Check which label is right.")
    if content.dropped_conflicts.images:
        what = _conflict_note(content.dropped_conflicts)
        lines.append(f"warning: {what}; one record of each was kept. Check its label.")
    lines += [
        f"note: {count:,} records of {split} have the same image as another record of {split}"
        for split, count in content.duplicates.items()
    ]
    if content.leaks or content.duplicates:
        lines.append("      (--deduplicate content keeps one row of each image)")
    return lines


def _leak_note(leak: Leakage) -> str:
    one, two = leak.splits
    shown = _pairs(leak.examples)
    return f"warning: {one} and {two} share {_count(leak.images, 'image')} ({shown})"


def _conflict_note(conflicts: Conflicts) -> str:
    verb = "has" if conflicts.images == 1 else "have"
    shown = _pairs(conflicts.examples)
    return f"{_count(conflicts.images, 'image')} {verb} more than one label ({shown})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _pairs(examples: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{one} = {two}" for one, two in examples[:_SHOWN_PAIRS])
    return f"{shown}, …" if len(examples) > _SHOWN_PAIRS else shown
