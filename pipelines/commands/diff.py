"""`recordmill diff`: compares two datasets by key."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rich.console import Console

from pipelines.diff import diff
from pipelines.diff_sheet import as_json, show_diff
from schemas.errors import ProofError
from transforms.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compares two datasets."""
    use_store_flags(vars(flags))
    difference = diff(flags.left, flags.right, max(0, flags.n))
    if flags.json:
        print(json.dumps(as_json(difference), ensure_ascii=False))
    else:
        show_diff(Console(), difference)
    return 0 if difference.is_none else ProofError.exit_code
