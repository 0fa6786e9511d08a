"""`recordmill convert`: runs a conversion, shows its progress, and prints its summary."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext

from recordmill.pipelines import api, dry_run
from recordmill.pipelines.console.printing import print_error, say, say_json, warn
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.engines.beam_patches import apply, uncompressed_steps
from recordmill.pipelines.engines.runners import runs_directly
from recordmill.pipelines.options import beam_options
from recordmill.pipelines.run.summary import show_summary
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Forecast
from recordmill.transforms.storage.dataset import Dataset

_NO_OPTIONS = ("command", "json", "dry_run", "typed", "verbose", "log_format", "interrupt")


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Runs a conversion or a dry run, and prints the result.

    Args:
        flags: the parsed flags.
        rest: flags of Beam.

    Returns:
        The exit code.
    """
    apply()
    options = {k: v for k, v in vars(flags).items() if k not in _NO_OPTIONS}
    beam, command = beam_options(rest), ("recordmill", *flags.typed)
    is_dry = "dry_run" in flags
    with uncompressed_steps() if is_dry or runs_directly(beam) else nullcontext():
        if is_dry:
            return _dry_run(*api.forecast_of(options, beam, command, show=True), flags.json)
        config, record = api.run(
            options,
            beam,
            command=command,
            interrupt=flags.interrupt,
            show=True,
            submission=print_error,
        )
    if record is None:
        return _skipped(config, flags.json)
    if flags.json:
        say_json(json.dumps(record.model_dump(mode="json"), ensure_ascii=False))
    for warning in record.warnings:
        warn(f"warning: {warning}")
    if record.exit_code or record.state == "submitted":
        warn(record.message)
    elif not flags.json:
        manifest = Dataset.open(config.directory).manifest
        show_summary(Terminal(), record, manifest, config.directory)
    return record.exit_code


def _skipped(config: ConvertConfig, as_json: bool) -> int:
    text = f"{config.directory}: is already published; left unchanged (--if_exists skip)"
    if as_json:
        say_json(json.dumps({"state": "skipped", "exit_code": 0, "message": text}))
    else:
        say(text)
    return 0


def _dry_run(config: ConvertConfig, forecast: Forecast | None, as_json: bool) -> int:
    if forecast is None:
        return _skipped(config, as_json)
    if as_json:
        say_json(json.dumps(dry_run.as_json(forecast, config), ensure_ascii=False))
    else:
        dry_run.show_forecast(Terminal(), forecast, config)
    dry_run.check(forecast, config)
    return 0
