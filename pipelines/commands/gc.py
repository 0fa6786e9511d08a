"""`recordmill gc`: deletes old versions of a dataset."""

from __future__ import annotations

import argparse

from recordmill.pipelines.commands.versions import as_json, outcome
from recordmill.pipelines.console.terminal import say, say_json, warn
from recordmill.pipelines.versions.deletion import delete_old


def run(flags: argparse.Namespace) -> int:
    """Deletes all but the newest versions of a dataset, and returns the exit code."""
    done = delete_old(flags.folder, flags.keep, flags.dry_run)
    ended = outcome(done.problems)
    code: int = ended["exit_code"]
    for problem in done.problems:
        warn(str(problem))
    if flags.json:
        deleted = [as_json(version) for version in done.deleted]
        say_json({**ended, "deleted": deleted, "completed": list(done.completed)})
        return code
    what = "would be deleted" if flags.dry_run else "deleted"
    for version in done.deleted:
        say(f"{what}: {version.directory} ({version.manifest.input.records:,} records)")
    for directory in done.completed:
        say(f"{what}: {directory} (whose deletion was interrupted)")
    if not (done.deleted or done.completed or done.problems):
        say(f"nothing to delete: {flags.folder} has at most {flags.keep} versions")
    return code
