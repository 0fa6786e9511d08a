"""The summary of a run: a table of row counts, notes and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.run.class_notes import class_drift_notes, rare_class_notes
from recordmill.pipelines.run.image_notes import image_notes
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.pipelines.run.split_notes import (
    missing_class_notes,
    share_notes,
    stratification_notes,
)
from recordmill.schemas import layout
from recordmill.schemas.manifest import BaseEntry, Manifest
from recordmill.schemas.plan import SourceEntry
from recordmill.schemas.statistics import Conflicts, DuplicateStats, Leakage
from recordmill.transforms.functional.rows.sampling import OUTSIDE
from recordmill.transforms.join_labels import UNMATCHED
from recordmill.transforms.list_unused_images import UNUSED

_SHOWN_PAIRS = 2

# Empty shards that a small dataset may have by chance.
_FEW_SHARDS = 10
_SHOWN_IDS = 3
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
    shares = ("share", "asked") if manifest.shares else ()
    heads = ("split", "rows", *frames, "records", "rejected", "shards", "MiB", *shares)
    rows = []
    for name, split in manifest.ordered_splits.items():
        size = sum(shard.bytes for shard in split.shards) / 2**20
        written = (split.records,) if split.frames is None else (split.frames, split.records)
        counts = (split.rows, *written, split.rejected, len(split.shards))
        share = (manifest.shares or {}).get(name)
        of_all = (f"{share.actual:.1%}", f"{share.asked:.1%}") if share else ("",) * len(shares)
        rows.append((name, *(f"{count:,}" for count in counts), f"{size:,.1f}", *of_all))
    # Rows without a split are shown in their own line, so that columns sum to all rows.
    if manifest.input.unplaced:
        unplaced = f"{manifest.input.unplaced:,}"
        empty = ("",) * (2 + len(shares))
        rows.append(("(no split)", unplaced, *("0" for _ in frames), "0", unplaced, *empty))
    terminal.table(heads, rows, right=range(1, len(heads)))
    if reasons := [f"{count:,} {reason}" for reason, count in manifest.input.reasons.items()]:
        terminal.line(f"rejected: {', '.join(reasons)}")
    terminal.lines(f"  {line}" for line in record.reject_lines)
    terminal.lines(notes(manifest, record.skipped_names))
    if manifest.base:
        terminal.lines(_base_notes(manifest, manifest.base, record))
    if record.shards_reused:
        what = f"{record.shards_reused:,} of {record.shards:,} shards"
        terminal.line(f"resumed: {what} were finished by an earlier run")
    rate = f"{record.records:,} records in {record.seconds:,.1f} s"
    terminal.line(f"verified and published: {directory} ({rate})")


def shard_notes(records: Mapping[str, Sequence[int]]) -> list[str]:
    """Returns a warning about each split most of whose shards are empty.

    Args:
        records: the number of records in each shard, by split.
    """
    lines = []
    for name, shards in records.items():
        empty = sum(count == 0 for count in shards)
        if empty > _FEW_SHARDS and 2 * empty > len(shards):
            lines.append(
                f"warning: {empty:,} of the {len(shards):,} shards of {name!r} are empty. "
                "Lower --num_shards, or give --shard_size a unit, as in 128MiB."
            )
    return lines


def encoding_notes(manifest: Manifest) -> list[str]:
    """Returns a note on the images that were encoded as JPEG, with its loss."""
    settings = manifest.dataset_schema.image
    count = sum(n for how, n in manifest.images.items() if " to jpeg" in how)
    if not count:
        return []
    hint = "" if settings.format == "jpeg" else "; --image format=png resizes without further loss"
    return [f"encoded: {_count(count, 'image')} as JPEG with quality {settings.quality}{hint}"]


def notes(manifest: Manifest, skipped_names: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns notes and warnings on a published dataset, in addition to its row counts.

    Args:
        manifest: the manifest of the dataset.
        skipped_names: the first names of skipped inputs, by kind.
    """
    lines = list(manifest.source.recognized) if manifest.source else []
    if manifest.input.duplicates:
        similar = manifest.config.get("near_duplicates") == "drop"
        what = f"{manifest.input.duplicates:,} rows with the image of another row"
        lines.append(f"dropped: {what}{', or a similar one' if similar else ''}")
    sample = manifest.config.get("sample")
    lists = {UNMATCHED: layout.UNMATCHED_LABELS, UNUSED: layout.UNMATCHED_IMAGES}
    return (
        lines
        + skipped_notes(manifest.input.asides, skipped_names, manifest.input.rows, sample, lists)
        + shard_notes(
            {n: [shard.records for shard in s.shards] for n, s in manifest.splits.items()}
        )
        + encoding_notes(manifest)
        + group_notes(manifest)
        + duplicate_notes(manifest.content)
        + image_notes(manifest)
        + share_notes(manifest)
        + stratification_notes(manifest)
        + missing_class_notes(manifest)
        + rare_class_notes(manifest)
        + class_drift_notes(manifest)
        + class_name_notes(manifest)
    )


def skipped_notes(
    skipped: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
    rows: int,
    sample: str | int | None,
    lists: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Returns a note on each kind of skipped input, and on the size of a sample.

    Args:
        skipped: the number of skipped inputs by kind.
        names: the first of their names, by kind.
        rows: the number of rows that were read, or are in the sample.
        sample: the option; None if all rows are converted.
        lists: the folder with the list of a kind.

    >>> skipped_notes({"rows outside of --sample": 993, "files": 2}, {"files": ["a", "b"]}, 7, "1%")
    ['sample 1%: 7 of 1,000 rows', 'skipped: files (2: a, b)']
    """
    others = {what: count for what, count in skipped.items() if what != OUTSIDE}
    total = rows + skipped.get(OUTSIDE, 0)
    lines = [] if sample is None else [f"sample {sample}: {rows:,} of {_count(total, 'row')}"]
    for what, count in others.items():
        shown = ", ".join(names.get(what, ()))
        more = ", …" if shown and count > len(names[what]) else ""
        listed = f", listed in {lists[what]}/" if what in lists else ""
        lines.append(f"skipped: {what} ({count:,}{f': {shown}{more}' if shown else listed})")
    return lines


def class_name_notes(manifest: Manifest) -> list[str]:
    """Returns notes on class names that look like numbers."""
    lines = []
    for feature, names in manifest.classes.items():
        if manifest.source and feature in manifest.source.class_ids:
            lines += id_notes(feature, names, manifest.source)
        elif not (manifest.config.get("classes") or manifest.config.get("num_classes")):
            lines += number_notes(feature, names)
    return lines


def id_notes(feature: str, names: Sequence[str], source: SourceEntry) -> list[str]:
    """Returns a note if the class ids of a feature are not those of the source.

    Args:
        feature: the feature with the classes.
        names: the class names in the order of their ids.
        source: the class ids of the source.

    >>> id_notes("label", ("cat", "dog"), SourceEntry(class_ids={"label": {"cat": 0, "dog": 1}}))
    []
    """
    declared = source.class_ids.get(feature, {})
    lines = []
    if conflict := source.conflicts.get(feature):
        lines.append(f"note: {conflict}. The classes of {feature!r} are in the order of the files.")
    changed = [(name, id_) for id_, name in enumerate(names) if declared.get(name, id_) != id_]
    if not changed:
        return lines
    shown = ", ".join(f"{name} {declared[name]} → {id_}" for name, id_ in changed[:_SHOWN_IDS])
    more, verb = ", …" * (len(changed) > _SHOWN_IDS), "differs" if len(changed) == 1 else "differ"
    lines.append(
        f"note: {_count(len(changed), 'class id')} of {feature!r} {verb} from the source "
        f"({shown}{more}), because ids count from 0 without gaps"
    )
    # COCO counts its categories from 1.
    if all(declared[name] == id_ + 1 for name, id_ in changed) and len(changed) == len(names):
        lines.append("      (--label_offset 1 keeps the ids of the source)")
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


def no_rows_note(base: str) -> str:
    """Returns a note on an increment without rows.

    Args:
        base: the base version.
    """
    return f"note: the input has no rows, so the records are those of {base}"


def _base_notes(manifest: Manifest, base: BaseEntry, record: RunRecord) -> Iterator[str]:
    kept, new, gone = (sum(counts.values()) for counts in (base.kept, base.new, base.gone))
    is_same = not new + gone and manifest.config["append"]
    # A row that is neither rejected nor dropped nor unchanged is one of a record that was kept.
    if is_same and manifest.input.rows == manifest.input.converted:
        yield no_rows_note(base.version)
    yield (
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
        f"note: {_records(count, split)} the same image as another record of {split}"
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


def _records(number: int, split: str) -> str:
    return f"{_count(number, 'record')} of {split} {'has' if number == 1 else 'have'}"


def _pairs(examples: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{one} = {two}" for one, two in examples[:_SHOWN_PAIRS])
    return f"{shown}, …" if len(examples) > _SHOWN_PAIRS else shown
