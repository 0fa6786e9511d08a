"""`recordmill verify`: verifies published datasets, or TFRecord files by a schema."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.dataset.verify import raise_problems, verify_dataset, verify_files
from recordmill.pipelines.options import load_schema
from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import Problem
from recordmill.transforms.storage.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Verifies published datasets, or TFRecord files by a schema.

    Args:
        flags: the parsed flags.
        rest: unknown flags; always empty.

    Returns:
        The exit code.

    Raises:
        VerificationFailed: if there are problems.
    """
    use_store_flags(vars(flags))
    verify: Verify = "decode" if flags.decode else "parse"
    if flags.schema is not None:
        records, problems = verify_files(flags.paths, load_schema(flags.schema), verify)
    else:
        records, problems = 0, list[Problem]()
        for directory in flags.paths:
            dataset, found = verify_dataset(directory, verify)
            records += dataset.manifest.input.records
            problems += found
    raise_problems(" ".join(flags.paths), problems)
    say(f"verified: {records:,} records in {' '.join(flags.paths)}")
    return 0
