"""The summary of a run: a table of row counts, rejects and findings."""

from __future__ import annotations

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas.findings import lines
from recordmill.schemas.manifest import Manifest


def show_summary(terminal: Terminal, record: RunRecord, manifest: Manifest, directory: str) -> None:
    """Prints the row counts of each split, and the findings."""
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
    terminal.lines(lines(record.findings))
    if record.shards_reused:
        what = f"{record.shards_reused:,} of {record.shards:,} shards"
        terminal.line(f"resumed: {what} were finished by an earlier run")
    rate = f"{record.records:,} records in {record.seconds:,.1f} s"
    terminal.line(f"verified and published: {directory} ({rate})")
