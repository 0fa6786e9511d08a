"""`recordmill verify`: verifies published datasets, or TFRecord files by a schema."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from recordmill.pipelines.console.terminal import say, say_json, warn
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
    try:
        raise_problems(" ".join(verified), problems)
    except VerificationFailed as error:
        if not flags.json:
            raise
        warn(str(error))
        say_json(_document(verified, records, problems, error))
        return error.exit_code
    if flags.json:
        say_json(_document(verified, records, problems, None))
    else:
        say(f"verified: {records:,} records in {' '.join(verified)}")
    return 0


def _document(
    paths: Sequence[str],
    records: int,
    problems: Sequence[Problem],
    error: VerificationFailed | None,
) -> dict[str, Any]:
    """Returns the result of a verification as a JSON document."""
    return {
        "state": "failed" if error else "verified",
        "exit_code": error.exit_code if error else 0,
        "message": str(error) if error else "",
        "paths": list(paths),
        "records": records,
        "problems": [asdict(problem) for problem in problems],
    }
