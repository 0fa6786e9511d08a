"""`recordmill verify`: verifies a dataset again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.dataset.verify import verify_dataset, verify_files
from recordmill.pipelines.options import load_schema
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed
from recordmill.transforms.storage.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Verifies datasets again, or files by a schema."""
    use_store_flags(vars(flags))
    verify: Verify = "decode" if flags.decode else "parse"
    if flags.schema is not None:
        records, problems = verify_files(flags.paths, load_schema(flags.schema), verify)
    else:
        records, problems = 0, list[Problem]()
        for directory in flags.paths:
            manifest, found = verify_dataset(directory, verify)
            records += manifest.input.records
            problems += found
    if problems:
        shown = "\n  ".join(str(problem) for problem in problems)
        raise VerificationFailed(f"{' '.join(flags.paths)}: verification failed:\n  {shown}")
    say(f"verified: {records:,} records in {' '.join(flags.paths)}")
    return 0
