"""`recordmill verify`: verifies datasets, and TFRecord files of any origin."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from functools import partial

from recordmill.pipelines.console.terminal import finish, say, warn
from recordmill.pipelines.verification import Verification, verify, verify_schema
from recordmill.schemas.config import Verify
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import counted

# Problems and warnings that are printed; --json has all.
_SHOWN = 100


def run(flags: argparse.Namespace) -> int:
    """Verifies datasets or TFRecord files, and returns the exit code."""
    level: Verify = "decode" if flags.decode else "parse"
    if flags.schema is not None:
        if flags.salvage is not None:
            raise UsageError("--salvage: is not possible with --schema")
        from recordmill.pipelines.options import load_schema  # imports Beam

        found = verify_schema(flags.paths, load_schema(flags.schema), level)
    else:
        found = verify(flags.paths, level, check=False, salvage=flags.salvage)
    for warning in found.warnings[:_SHOWN]:
        warn(f"warning: {warning}")
    failures = list[VerificationFailed]()
    try:
        found.check()
    except VerificationFailed as error:
        failures.append(error)
    document = asdict(replace(found, dataset=None))
    del document["dataset"]
    show = partial(_show, found, flags.salvage)
    return finish(flags.json, document, show, *failures, state="verified")


def _show(found: Verification, salvage: str | None) -> None:
    if found.salvaged:
        files = counted(len(found.salvaged), "file")
        what = f"{counted(sum(found.salvaged.values()), 'record')} of {files}"
        if intact := found.files - len(found.damaged):
            what += f"; copy the {counted(intact, 'intact file')} beside them"
        say(f"salvaged: {what}; convert them with --input {salvage}")
    elif salvage is not None:
        say(f"salvaged: nothing, because no file has damaged records; {salvage} was not written")
    if not found.num_problems:
        files = "" if found.dataset else f", {counted(found.files, 'file')}"
        say(f"verified: {counted(found.records, 'record')} in {' '.join(found.paths)}{files}")
