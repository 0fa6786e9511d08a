"""`recordmill verify`: verifies datasets, and TFRecord files of any origin."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from recordmill.pipelines.console.terminal import outcome, say, say_json, warn
from recordmill.pipelines.verification import Verification, verify
from recordmill.schemas.config import Verify
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import counted

# Problems and warnings that are printed; --json has all.
_SHOWN = 100


def run(flags: argparse.Namespace) -> int:
    """Verifies datasets or TFRecord files, and returns the exit code.

    Raises VerificationFailed if there are problems.
    """
    level: Verify = "decode" if flags.decode else "parse"
    if flags.schema is not None:
        if flags.salvage is not None:
            raise UsageError("--salvage: is not possible with --schema")
        from recordmill.pipelines.dataset.verify import verify_files  # imports Beam
        from recordmill.pipelines.options import load_schema

        records, problems = verify_files(flags.paths, load_schema(flags.schema), level)
        found = Verification(flags.paths, len(flags.paths), records)
        found.add(problems)
    else:
        found = verify(flags.paths, level, check=False, salvage=flags.salvage)
    failures: list[VerificationFailed] = []
    for warning in found.warnings[:_SHOWN]:
        warn(f"warning: {warning}")
    if found.salvaged and not flags.json:
        kept = sum(found.salvaged.values())
        files = counted(len(found.salvaged), "file")
        what = f"{counted(kept, 'record')} of {files}"
        say(f"salvaged: {what}; convert them with --input {flags.salvage}")
    try:
        found.check()
    except VerificationFailed as error:
        if not flags.json:
            raise
        warn(str(error))
        failures.append(error)
    head = outcome(*failures, state="verified")
    if flags.json:
        named = asdict(replace(found, dataset=None))
        del named["dataset"]
        say_json({**head, **named})
    else:
        files = "" if found.dataset else f", {counted(found.files, 'file')}"
        say(f"verified: {counted(found.records, 'record')} in {' '.join(found.paths)}{files}")
    return int(head["exit_code"])
