"""`recordmill completion`: prints a script for a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pipelines.completion import completion_script
from pipelines.parser import program
from pipelines.printing import say


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints the script that completes commands and flags in a shell."""
    say(completion_script(program(), flags.shell))
    return 0
