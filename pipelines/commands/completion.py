"""`recordmill completion`: prints a script for a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from recordmill.pipelines.completion import completion_script
from recordmill.pipelines.console.printing import say
from recordmill.pipelines.parser import program


def run(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    """Prints the script that completes commands and flags in a shell."""
    say(completion_script(program(), flags.shell))
    return 0
