"""`recordmill versions` and `gc`: list the versions of a dataset, and delete old ones."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from recordmill.pipelines.console.terminal import Terminal, finish, say
from recordmill.pipelines.versions import Deletion, Listing, Version, delete_old, list_versions
from recordmill.schemas.findings import counted


def run(flags: argparse.Namespace) -> int:
    """Lists the versions of a dataset, oldest first, and returns the exit code."""
    listing = list_versions(flags.folder)
    document = {
        "versions": list(map(_as_json, listing.versions)),
        "unreadable": list(listing.unreadable),
        "unfinished": list(listing.unfinished),
    }
    errors = listing.unreadable.values()
    return finish(flags.json, document, partial(_show_versions, listing), *errors)


def _show_versions(listing: Listing) -> None:
    """Prints a table of versions, and those that are unfinished."""
    heads = ("version", "records", "MiB", "own MiB", "from")
    rows = [
        (
            version.manifest.version,
            f"{version.manifest.input.records:,}",
            f"{version.bytes / 2**20:,.1f}",
            f"{version.own_bytes / 2**20:,.1f}",
            version.base or "",
        )
        for version in listing.versions
    ]
    Terminal().table(heads, rows, right=(1, 2, 3))
    for name in listing.unfinished:
        say(f"unfinished: {listing.folder}/{name} (repeat its run, or complete its deletion by gc)")


def _as_json(version: Version) -> dict[str, Any]:
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
    document = {"deleted": list(map(_as_json, done.deleted)), "completed": list(done.completed)}
    show, state = partial(_show_deleted, flags, done), "planned" if flags.dry_run else "shown"
    return finish(flags.json, document, show, *done.problems, state=state)


def _show_deleted(flags: argparse.Namespace, done: Deletion) -> None:
    what = "would be deleted" if flags.dry_run else "deleted"
    for version in done.deleted:
        records = counted(version.manifest.input.records, "record")
        say(f"{what}: {version.directory} ({records})")
    for directory in done.completed:
        say(f"{what}: {directory} (whose deletion was interrupted)")
    if not (done.deleted or done.completed or done.problems):
        say(f"nothing to delete: {flags.folder} has at most {counted(flags.keep, 'version')}")
