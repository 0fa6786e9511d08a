"""`recordmill schema`: prints a schema, or guesses one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pipelines.options import load_schema
from pipelines.printing import say
from pipelines.schema_inference import infer_schema
from pipelines.schema_sheet import show_schema
from pipelines.terminal import Terminal
from transforms.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints a schema, or one that fits a table."""
    use_store_flags(vars(flags))
    if flags.infer is not None:
        say(infer_schema(flags.infer, flags.image_root, flags.input_format), end="")
    else:
        show_schema(Terminal(), load_schema(flags.schema))
    return 0
