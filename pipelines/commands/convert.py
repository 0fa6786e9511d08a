"""`recordmill convert`: makes a dataset, shows how far it is, and tells how it ended."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines import convert, dry_run, dry_run_output
from recordmill.pipelines.console.printing import say, say_json, warn
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.engines.submission import check_submission
from recordmill.pipelines.options import beam_options, config_of
from recordmill.pipelines.run.progress import progress, watch
from recordmill.pipelines.run.summary import show_summary
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.stores.options import use_options
from recordmill.transforms.workers.progress import PULSE

_NO_SETTINGS = ("command", "json", "dry_run", "typed", "verbose", "log_format", "interrupt")


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Makes a dataset."""
    values = {k: v for k, v in vars(flags).items() if k not in _NO_SETTINGS}
    is_dry = "dry_run" in flags
    options = beam_options(rest)
    use_options(options)  # the table may well be in a store
    config = config_of(values)
    check_submission(config, options)
    job = convert.prepare(config, options, ("recordmill", *flags.typed), is_dry)
    if job is None:
        text = f"{config.directory}: is published already; left as it is (--if_exists skip)"
        if flags.json:
            say_json(json.dumps({"state": "skipped", "exit_code": 0, "message": text}))
        else:
            say(text)
        return 0
    if is_dry:
        return _dry_run(job, options, flags.json)
    with watch(job.target.progress, options) as look, progress(look):
        record = convert.run(job, options, flags.interrupt)
        flags.interrupt.code = record.exit_code
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


def _dry_run(job: convert.Conversion, options: PipelineOptions, as_line: bool) -> int:
    PULSE.reset()
    with progress(lambda: PULSE):
        forecast = dry_run.dry_run(job, options)
    if as_line:
        say_json(json.dumps(dry_run_output.as_json(forecast, job.config), ensure_ascii=False))
    else:
        dry_run_output.show_forecast(Terminal(), forecast, job.config)
    dry_run.check(forecast, job.config)
    return 0
