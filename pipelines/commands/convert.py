"""`recordmill convert`: runs a conversion, shows its progress, and prints its summary."""

from __future__ import annotations

import argparse
from typing import Any

from recordmill.pipelines import api, dry_run
from recordmill.pipelines.console.terminal import (
    Terminal,
    outcome,
    print_error,
    say,
    say_json,
    warn,
)
from recordmill.pipelines.convert import report_kept
from recordmill.pipelines.engines.beam_patches import apply
from recordmill.pipelines.options import beam_options
from recordmill.pipelines.run.run_record import PUBLISHED, RunRecord
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.findings import counted, lines
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.plan import Forecast
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.files import exists

_NO_OPTIONS = ("command", "json", "dry_run", "typed", "verbose", "log_format", "interrupt", "rest")


def run(flags: argparse.Namespace) -> int:
    """Runs a conversion or a dry run, prints the result, and returns the exit code."""
    apply()
    options = {k: v for k, v in vars(flags).items() if k not in _NO_OPTIONS}
    beam = beam_options(flags.rest)
    command = ("recordmill", *flags.typed)
    is_dry = "dry_run" in flags
    if is_dry:
        return _dry_run(*api.forecast_of(options, beam, command, show=True), flags.json)
    config, record = api.run(
        options,
        beam,
        command=command,
        interrupt=flags.interrupt,
        show=True,
        submission=lambda text: print_error(text, "INFO"),
    )
    if record is None:
        return _skipped(config, flags.json)
    if flags.json:
        say_json(_document(config, record))
    if flags.json or record.state != PUBLISHED:  # otherwise, the summary has them
        for warning in record.warnings:
            warn(f"warning: {warning}")
    if record.exit_code or record.state == "submitted":
        warn(record.message)
    elif not flags.json:
        manifest = DatasetFolder.open(config.directory).manifest
        _show_summary(Terminal(), record, manifest, config.directory)
    return record.exit_code


def _show_summary(
    terminal: Terminal, record: RunRecord, manifest: Manifest, directory: str
) -> None:
    frames = ("frames",) if manifest.input.frames is not None else ()
    shares = ("share", "asked") if manifest.shares else ()
    same = ("unchanged",) if manifest.input.unchanged else ()
    heads = ("split", "rows", *frames, "records", "rejected", *same, "shards", "MiB", *shares)
    rows = []
    for name, split in manifest.ordered_splits.items():
        size = sum(shard.bytes for shard in split.shards) / 2**20
        written = (split.records,) if split.frames is None else (split.frames, split.records)
        unchanged = (split.unchanged,) * len(same)
        counts = (split.rows, *written, split.rejected, *unchanged, len(split.shards))
        share = (manifest.shares or {}).get(name)
        of_all = (f"{share.actual:.1%}", f"{share.asked:.1%}") if share else ("",) * len(shares)
        rows.append((name, *(f"{count:,}" for count in counts), f"{size:,.1f}", *of_all))
    # Rows without a split are shown in their own line, so that columns sum to all rows.
    if manifest.input.unplaced:
        unplaced = f"{manifest.input.unplaced:,}"
        empty = ("",) * (len(same) + 2 + len(shares))
        rows.append(("(no split)", unplaced, *("0" for _ in frames), "0", unplaced, *empty))
    terminal.table(heads, rows, right=range(1, len(heads)))
    terminal.lines([*record.reject_lines, *lines(record.findings)])
    if record.shards_reused:
        what = f"{record.shards_reused:,} of {counted(record.shards, 'shard')}"
        terminal.line(f"resumed: kept {what} of an earlier run")
    rate = f"{counted(record.records, 'record')} in {record.seconds:,.1f} s"
    terminal.line(f"verified and published: {directory} ({rate})")


def _skipped(config: ConvertConfig, as_json: bool) -> int:
    text = f"{config.directory}: is already published; left unchanged (--if_exists skip)"
    warnings = report_kept(config, lambda warning: warn(f"warning: {warning}"))
    if as_json:
        head = {**outcome(state="skipped"), "message": text}
        say_json({**head, "directory": config.directory, "warnings": warnings})
    else:
        say(text)
    return 0


def _dry_run(config: ConvertConfig, forecast: Forecast | None, as_json: bool) -> int:
    if forecast is None:
        return _skipped(config, as_json)
    if not as_json:
        dry_run.show_forecast(Terminal(), forecast, config)
        dry_run.check(forecast, config)
        return 0
    code, message = 0, ""
    try:
        dry_run.check(forecast, config)
    except RecordmillError as error:
        code, message = error.exit_code, str(error)
        warn(message)
    say_json({**dry_run.as_json(forecast, config), "exit_code": code, "message": message})
    return code


def _document(config: ConvertConfig, record: RunRecord) -> dict[str, Any]:
    """Returns the record of a run with the location and the counts of its dataset."""
    directory = record.directory or config.directory
    document = {**record.model_dump(mode="json"), "directory": directory}
    published = record.state == PUBLISHED
    counts = {"rows", "records", "rejected"}
    if published:
        splits = DatasetFolder.open(config.directory).manifest.ordered_splits
        document["splits"] = {
            name: {**split.model_dump(include=counts), "shards": len(split.shards)}
            for name, split in splits.items()
        }
    report = layout.join(directory, layout.REPORT)
    has_report = config.report and (published or exists(report))
    return {**document, "report": report if has_report else None}
