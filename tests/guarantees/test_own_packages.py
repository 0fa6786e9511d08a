"""A user's own packages may be called schemas, transforms and pipelines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.images import jpeg

ROOT = Path(__file__).parents[2]
PROGRAM = """
import pipelines, schemas, transforms
import recordmill
print(pipelines.OWN, schemas.OWN, transforms.OWN)
dataset = recordmill.convert("labels.csv", output="out", name="own", report=False)
print(dataset)
"""


def test_packages_of_the_user_do_not_affect_a_conversion(tmp_path: Path) -> None:
    for name in ("schemas", "transforms", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    (tmp_path / "a.jpg").write_bytes(jpeg(40, 30))
    (tmp_path / "labels.csv").write_text("image,label\na.jpg,cat\n")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.splitlines() == [
        "True True True",
        "Dataset('out/own/1.0.0'): train 1 records",
        "note: 1 image is blurred (a.jpg)",
        "note: 1 image is tiny (a.jpg)",
        "note: 1 of the 1 classes of 'label' occurs fewer than 10 times (cat: 1)",
    ], ended.stderr
