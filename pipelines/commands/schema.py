"""`recordmill schema`: prints a schema, or guesses one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.console.printing import say
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.options import load_schema
from recordmill.pipelines.schema_inference import infer_schema
from recordmill.pipelines.schema_output import show_schema
from recordmill.transforms.storage.stores.options import use_store_flags


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints a schema, or one that fits a table."""
    use_store_flags(vars(flags))
    if flags.infer is not None:
        say(infer_schema(flags.infer, flags.image_root, flags.input_format), end="")
    else:
        show_schema(Terminal(), load_schema(flags.schema))
    return 0
