"""`recordmill diff`: compares two datasets by key."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from recordmill.pipelines.console.printing import say_json
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.dataset.diff import diff
from recordmill.pipelines.dataset.diff_output import as_json, show_diff
from recordmill.schemas.errors import ProofError
from recordmill.transforms.storage.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compares two datasets."""
    use_store_flags(vars(flags))
    difference = diff(flags.left, flags.right, max(0, flags.n))
    if flags.json:
        say_json(json.dumps(as_json(difference), ensure_ascii=False))
    else:
        show_diff(Terminal(), difference)
    return 0 if difference.is_none else ProofError.exit_code
