"""Virtual environments for packages that conflict with those of the tests, created once and cached.

They are in ${RECORDMILL_CACHE:-~/.cache/recordmill}, each named by a digest of its packages.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
"""The checkout."""

CACHE = Path(os.environ.get("RECORDMILL_CACHE") or Path.home() / ".cache" / "recordmill")

_COMPLETE = ".complete"
_SECONDS = 900


def environment(name: str, requirements: Sequence[str], constraints: Path) -> Path:
    """Returns a virtual environment with the given packages, created if necessary."""
    python = find_python()
    parts = [str(python), *requirements, constraints.read_text(encoding="utf-8")]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    folder = CACHE / "venvs" / f"{name}-{digest}"
    if not (folder / _COMPLETE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder)
        install(folder, *requirements, "--constraint", str(constraints))
        (folder / _COMPLETE).touch()
    return folder


def packages(name: str, requirements: Sequence[str]) -> Path:
    """Returns a folder for PYTHONPATH with some packages alone, without what they require."""
    digest = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    folder = CACHE / "packages" / f"{name}-{digest}"
    if not (folder / _COMPLETE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", folder, *requirements)
        (folder / _COMPLETE).touch()
    return folder


def install(folder: Path, *arguments: object) -> None:
    """Installs packages into an environment, with uv if available because it is faster."""
    uv = shutil.which("uv")
    python = folder / "bin" / "python"
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    run(*pip, "--quiet", *arguments)


def find_python() -> Path:
    """Returns a Python 3.11 to 3.13, preferably that of the tests; Airflow needs 3.11."""
    known = [Path(sys.executable).resolve()]
    known += [Path(p) for v in (11, 12, 13) if (p := shutil.which(f"python3.{v}"))]
    check = "import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"
    for python in known:
        if not subprocess.run([python, "-c", check], capture_output=True, check=False).returncode:
            return python
    raise RuntimeError("these tests need Python 3.11, 3.12 or 3.13 besides the one they run on")


def run(*command: object, **options: object) -> str:
    """Runs a command that must succeed; returns its output."""
    words = list(map(str, command))
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=_SECONDS, **options
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {ended.returncode}\n{ended.stderr}")
    return ended.stdout
