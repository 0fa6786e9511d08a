"""`recordmill versions`: lists the versions of a dataset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.console.printing import SHOWN, say_json
from recordmill.pipelines.console.terminal import Terminal
from recordmill.pipelines.versions import Version, list_versions


def run(flags: argparse.Namespace) -> int:
    """Lists the versions of a dataset, oldest first, and returns the exit code."""
    versions = list_versions(flags.folder)
    if flags.json:
        say_json({**SHOWN, "versions": [as_json(version) for version in versions]})
    else:
        show_versions(Terminal(), versions)
    return 0


def show_versions(terminal: Terminal, versions: Sequence[Version]) -> None:
    """Prints a table of versions.

    Args:
        terminal: where to print.
        versions: the versions, oldest first.
    """
    heads = ("version", "records", "MiB", "own MiB", "from")
    rows = [
        (
            version.manifest.version,
            f"{version.manifest.input.records:,}",
            f"{version.bytes / 2**20:,.1f}",
            f"{version.own_bytes / 2**20:,.1f}",
            version.base or "",
        )
        for version in versions
    ]
    terminal.table(heads, rows, right=(1, 2, 3))


def as_json(version: Version) -> dict[str, Any]:
    """Returns a version as a JSON document."""
    return {
        "version": version.manifest.version,
        "directory": version.directory,
        "records": version.manifest.input.records,
        "bytes": version.bytes,
        "own_bytes": version.own_bytes,
        "base": version.base,
    }
