"""The tutorials work by copy and paste: runs every block of a page in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

OTHERS = ("pip install", "python draw.py", "VOC2012")
"""Blocks that set up an environment, or need data that a reader brings along."""

EXPECTED = {("first-dataset", 1): 4, ("first-dataset", 2): 4}
"""Exit codes other than 0, by page and number of the shell block."""


@pytest.mark.parametrize("name", ["first-dataset", "detection", "custom-schema"])
def test_every_step_works(name: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    page, number, printed = DOCS / "tutorials" / f"{name}.md", 0, ""
    for block in blocks(page, "python", "sh", "yaml"):
        if any(text in block for text in OTHERS):
            continue
        if block.startswith("name: "):
            (tmp_path / "plants.yaml").write_text(block, "utf-8")
            continue
        is_python = not block.startswith("recordmill")
        command = [sys.executable, "-c", block] if is_python else ["bash", "-ec", block]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        number += not is_python
        expected = 0 if is_python else EXPECTED.get((name, number), 0)
        assert ended.returncode == expected, f"{block}\n{ended.stdout}\n{ended.stderr}"
        printed += ended.stdout
    assert number >= 2
    assert [quoted for quoted in blocks(page, "text") if quoted not in printed] == []
