"""`recordmill inspect`: shows records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.inspect.command import inspect
from recordmill.transforms.storage.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Shows records."""
    use_store_flags(vars(flags))
    inspect(Terminal(), flags)
    return 0
