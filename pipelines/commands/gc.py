"""`recordmill gc`: deletes old versions of a dataset."""

from __future__ import annotations

import argparse

from recordmill.pipelines.commands.versions import as_json
from recordmill.pipelines.console.printing import SHOWN, say, say_json
from recordmill.pipelines.versions import delete_versions


def run(flags: argparse.Namespace) -> int:
    """Deletes all but the newest versions of a dataset, and returns the exit code."""
    deleted = delete_versions(flags.folder, flags.keep, flags.dry_run)
    if flags.json:
        say_json({**SHOWN, "deleted": [as_json(version) for version in deleted]})
        return 0
    what = "would be deleted" if flags.dry_run else "deleted"
    for version in deleted:
        say(f"{what}: {version.directory} ({version.manifest.input.records:,} records)")
    if not deleted:
        say(f"nothing to delete: {flags.folder} has at most {flags.keep} versions")
    return 0
