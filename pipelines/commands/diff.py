"""`recordmill diff`: compares two datasets by key."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from pipelines.diff import diff
from pipelines.diff_sheet import as_json, show_diff
from pipelines.printing import say_json
from pipelines.terminal import Terminal
from schemas.errors import ProofError
from transforms.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compares two datasets."""
    use_store_flags(vars(flags))
    difference = diff(flags.left, flags.right, max(0, flags.n))
    if flags.json:
        say_json(json.dumps(as_json(difference), ensure_ascii=False))
    else:
        show_diff(Terminal(), difference)
    return 0 if difference.is_none else ProofError.exit_code
