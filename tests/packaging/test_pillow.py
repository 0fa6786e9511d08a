"""The tests of images, the damaged corpus among them, on the newest release of Pillow.

Beam 2.77 requires Pillow 12, so this release is put before it on the path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.conftest import UV

PILLOW = "pillow==13.0.0"
TESTS = """
unit/transforms/functional/images
golden
end_to_end/test_odd_images.py
"""


def test_images_are_read_and_stored_alike(tmp_path: Path) -> None:
    target = (*UV, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable)
    run(*target, "--target", tmp_path, PILLOW)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    version = "import PIL; print('pillow==' + PIL.__version__)"
    assert run(sys.executable, "-c", version, env=environment).strip() == PILLOW
    files = [f"tests/{name}" for name in TESTS.split()]
    printed = run(sys.executable, "-m", "pytest", "-q", *files, cwd=ROOT, env=environment)
    assert " passed" in printed
    assert "skipped" not in printed
