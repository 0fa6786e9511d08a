"""Python environments of the baselines whose requirements clash with recordmill's."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = {
    "hf-datasets": ("datasets==5.2.0", "Pillow==13.0.0"),
    "webdataset-writer": ("webdataset==1.0.2",),
    "img2dataset-files": ("img2dataset==1.47.0",),
    "litdata-optimize": ("litdata==0.2.76",),  # 5.5 GB: it requires PyTorch
}
"""Name of a baseline to the packages of its environment; the others run in this one."""

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "recordmill"


def python_of(baseline: str) -> str:
    """Returns the Python of a baseline; creates its environment on first use.

    Args:
        baseline: name of the baseline.

    Raises:
        subprocess.CalledProcessError: if a package cannot be installed.
    """
    packages = REQUIREMENTS.get(baseline)
    if packages is None:
        return sys.executable
    folder = _CACHE / "benchmarks" / "-".join(packages).replace("==", "-")
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.touch()  # an interrupted installation is repeated
    return str(python)
