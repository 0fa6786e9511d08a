"""Python environments of the baselines, each with nothing but what its users install.

A package that happens to be installed can cost time: Beam imports the clients of all stores that it
finds, which takes as long as the rest of its import.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import venv
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
_CONSTRAINTS = _CHECKOUT / "constraints.txt"

# Beam, TensorFlow and Pillow are requirements of recordmill.
_PINNED = ("--constraint", str(_CONSTRAINTS))
_RECORDMILL = (*_PINNED, str(_CHECKOUT))
_WITH_TFDS = (*_PINNED, f"{_CHECKOUT}[tfds]")

_REQUIREMENTS = {
    "tfds-plain": _WITH_TFDS,
    "tfds-beam": _WITH_TFDS,
    "hf-datasets": ("datasets==5.2.0", "Pillow==13.0.0"),
    "webdataset-writer": ("webdataset==1.0.2",),
    "img2dataset-files": ("img2dataset==1.47.0",),
    "litdata-optimize": ("litdata==0.2.76",),  # 5.5 GB: it requires PyTorch
}
"""Name of a baseline to the arguments of pip; of all others, those that install recordmill."""

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "recordmill"


def python_of(baseline: str) -> str:
    """Returns the Python of a baseline; creates its environment on first use.

    Args:
        baseline: name of the baseline.

    Raises:
        subprocess.CalledProcessError: if a package cannot be installed.
    """
    arguments = _REQUIREMENTS.get(baseline, _RECORDMILL)
    pinned = _CONSTRAINTS.read_text() if str(_CONSTRAINTS) in arguments else ""
    digest = hashlib.sha256(f"{arguments} {pinned}".encode()).hexdigest()
    folder = _CACHE / "benchmarks" / digest[:16]
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)
        complete.touch()  # an interrupted installation is repeated
    return str(python)
