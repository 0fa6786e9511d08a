"""recordmill with its default checks: decodes every image, verifies every record."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks.baseline import Outcome, main
from recordmill.pipelines import command_line
from recordmill.pipelines.run.startup import limit_allocator_caches


def convert(table: Path, output: Path) -> Outcome:
    """Converts a table of photographs and decodes every image."""
    return run_command(table, output, "--key_column", "id")


def run_command(source: Path, output: Path, *flags: str) -> Outcome:
    """Runs `recordmill convert`; exits with its code if it fails.

    Args:
        source: path of the table or folder.
        output: folder of the dataset.
        flags: more arguments of the command.
    """
    limit_allocator_caches()
    from benchmarks.shuffle import metered_shuffle  # imports Beam and Arrow, after the limit is set

    arguments = {
        "--input": str(source),
        "--output": str(output),
        "--name": "benchmark",
        "--num_shards": "16",
        "--verify": "parse",
    }
    words = [word for pair in arguments.items() for word in pair]
    with metered_shuffle() as shuffled, redirect_stdout(io.StringIO()) as printed:
        exit_code = command_line.main(["convert", *words, "--json", *flags], owned=True)
    if exit_code:
        sys.exit(exit_code)
    record = json.loads(printed.getvalue().splitlines()[-1])
    return Outcome(record["records"], shuffled.bytes)


if __name__ == "__main__":
    main(convert)
