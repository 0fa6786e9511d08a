"""Builds what is published of recordmill: the source distribution, and the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.deploy.runs.environments import ROOT, run

PACKAGES = ("recordmill",)


def copy_source(folder: Path) -> Path:
    """Copies the files that the repository has, and no others, into a folder."""
    for name in repository_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def repository_files() -> list[str]:
    """Returns the names of all files that are, or are about to be, in the repository."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
