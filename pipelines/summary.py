"""The closing words of a run: a table for people, or one line of JSON for machines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from pipelines.run_record import RunRecord
from schemas.manifest import Manifest


def show_summary(console: Console, record: RunRecord, manifest: Manifest, directory: str) -> None:
    """Prints where every row went, split by split."""
    table = Table("split", *("rows", "records", "rejected", "shards", "MiB"), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, split in manifest.splits.items():
        size = sum(shard.bytes for shard in split.shards) / 2**20
        counts = (split.rows, split.records, split.rejected, len(split.shards))
        table.add_row(name, *(f"{count:,}" for count in counts), f"{size:,.1f}")
    if manifest.input.unplaced:
        unplaced = f"{manifest.input.unplaced:,}"
        table.add_row("(no split)", unplaced, "0", unplaced, "", "")
    console.print(table)
    for line in notes(manifest):
        console.print(line, highlight=False, soft_wrap=True)
    rate = f"{record.records:,} records in {record.seconds:,.1f} s"
    console.print(f"proven and published: {directory} ({rate})", highlight=False, soft_wrap=True)


def notes(manifest: Manifest) -> list[str]:
    """Returns what a person should know of a published dataset beyond its counts."""
    reasons = [f"{count:,} {reason}" for reason, count in manifest.input.reasons.items()]
    lines = [f"rejected: {', '.join(reasons)}"] if reasons else []
    asked = manifest.config.get("splits") or {}
    empty = [name for name in asked if float(asked[name]) > 0 and name not in manifest.splits]
    lines += [f"note: no row fell into split {name!r}; it was not written" for name in empty]
    for feature, names in manifest.classes.items():
        numbers = sum(name.lstrip("-").isdigit() for name in names)
        if numbers and numbers < len(names):
            lines.append(
                f"note: {numbers:,} of the {len(names):,} class names of {feature!r} are numbers; "
                "if labels are ids, mend the others, or give --classes"
            )
    return lines
