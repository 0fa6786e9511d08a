"""The files of the source distribution and the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.deploy.runs.environments import ROOT, run

LINKED = ("pipelines", "schemas", "transforms")
LINKS = {*(f"recordmill/{name}" for name in LINKED), "reader/recordmill"}


def copy_source(folder: Path) -> Path:
    """Copies only the files of the repository to a folder."""
    for name in repository_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def repository_files() -> list[str]:
    """Returns the names of all files in the repository, including new ones."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    paths = {name: ROOT / name for name in listed.split("\0") if name}
    return [name for name, path in paths.items() if path.is_file() or path.is_symlink()]


def packaged(name: str) -> str:
    """Returns the name of a file of the repository in a distribution.

    The packages are linked into `recordmill/`, where setuptools finds and stores them.
    """
    linked = name.partition("/")[0] in LINKED and "/" in name
    return f"recordmill/{name}" if linked else name
