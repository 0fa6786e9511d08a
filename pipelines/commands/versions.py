"""`recordmill versions` and `gc`: list the versions of a dataset, and delete old ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.console.terminal import Terminal, outcome, say, say_json, warn
from recordmill.pipelines.versions import Version, delete_old, list_versions
from recordmill.schemas.findings import counted


def run(flags: argparse.Namespace) -> int:
    """Lists the versions of a dataset, oldest first, and returns the exit code."""
    listing = list_versions(flags.folder)
    ended = outcome(*listing.problems)
    for problem in listing.problems:
        warn(str(problem))
    if flags.json:
        versions = [_as_json(version) for version in listing.versions]
        other = {"unreadable": list(listing.unreadable), "unfinished": list(listing.unfinished)}
        say_json({**ended, "versions": versions, **other})
    else:
        _show_versions(Terminal(), listing.versions)
        for version in listing.unfinished:
            say(f"unfinished: {listing.folder}/{version} (files of a run or a deletion)")
    code: int = ended["exit_code"]
    return code


def _show_versions(terminal: Terminal, versions: Sequence[Version]) -> None:
    """Prints a table of versions."""
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


def _as_json(version: Version) -> dict[str, Any]:
    """Returns a version as a JSON document."""
    return {
        "version": version.manifest.version,
        "directory": version.directory,
        "records": version.manifest.input.records,
        "bytes": version.bytes,
        "own_bytes": version.own_bytes,
        "base": version.base,
    }


def gc(flags: argparse.Namespace) -> int:
    """Deletes all but the newest versions of a dataset, and returns the exit code."""
    done = delete_old(flags.folder, flags.keep, flags.dry_run)
    ended = outcome(*done.problems)
    code: int = ended["exit_code"]
    for problem in done.problems:
        warn(str(problem))
    if flags.json:
        deleted = [_as_json(version) for version in done.deleted]
        say_json({**ended, "deleted": deleted, "completed": list(done.completed)})
        return code
    what = "would be deleted" if flags.dry_run else "deleted"
    for version in done.deleted:
        records = counted(version.manifest.input.records, "record")
        say(f"{what}: {version.directory} ({records})")
    for directory in done.completed:
        say(f"{what}: {directory} (whose deletion was interrupted)")
    if not (done.deleted or done.completed or done.problems):
        say(f"nothing to delete: {flags.folder} has at most {flags.keep} versions")
    return code
