"""Finds the Python interpreters of this machine: on the path, or installed by pyenv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

HERE = "{}.{}".format(*sys.version_info)
"""The version that runs the tests."""

SUPPORTED = tuple(
    found[1]
    for line in metadata.metadata("recordmill").get_all("Classifier") or ()
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
)
"""The versions in the classifiers of pyproject.toml: "3.10", …"""


@cache
def interpreters() -> dict[str, Path]:
    """Returns the installed interpreters of the supported versions."""
    found = {version: _find(version) for version in SUPPORTED}
    return {version: python for version, python in found.items() if python}


def _find(version: str) -> Path | None:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    return next((Path(path) for path in candidates if path and _is(path, version)), None)


def _is(python: str | Path, version: str) -> bool:
    """Returns whether an interpreter starts and has the version; pyenv's shims may do neither."""
    program = "import sys, ssl; print('%d.%d' % sys.version_info[:2])"
    ended = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return ended.stdout.strip() == version
