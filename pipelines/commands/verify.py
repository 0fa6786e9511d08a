"""`recordmill verify`: verifies published datasets, or TFRecord files by a schema."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from recordmill.pipelines.console.terminal import outcome, say, say_json, warn
from recordmill.pipelines.dataset.verify import raise_problems, verify_dataset, verify_files
from recordmill.pipelines.options import load_schema
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed


def run(flags: argparse.Namespace) -> int:
    """Verifies published datasets, or TFRecord files by a schema, and returns the exit code.

    Raises VerificationFailed if there are problems.
    """
    verify: Verify = "decode" if flags.decode else "parse"
    verified: list[str] = flags.paths
    if flags.schema is not None:
        records, problems = verify_files(flags.paths, load_schema(flags.schema), verify)
    else:
        records, problems, verified = 0, list[Problem](), []
        for directory in flags.paths:
            dataset, found = verify_dataset(directory, verify)
            records += dataset.manifest.input.records
            problems += found
            verified.append(dataset.directory)  # the newest version of DIR/NAME
    failures: list[VerificationFailed] = []
    try:
        raise_problems(" ".join(verified), problems)
    except VerificationFailed as error:
        if not flags.json:
            raise
        warn(str(error))
        failures.append(error)
    head = outcome(*failures, state="verified")
    if flags.json:
        shown = [asdict(problem) for problem in problems]
        say_json({**head, "paths": list(verified), "records": records, "problems": shown})
    else:
        say(f"verified: {records:,} records in {' '.join(verified)}")
    code: int = head["exit_code"]
    return code
