"""The reproductions in docs/upstream print what the reports say; if not, a workaround can go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
REPORTS = [
    pytest.param(*found, id=f"{page.stem}-{number}")
    for page in sorted((DOCS / "upstream").glob("*.md"))
    for number, found in enumerate(_EXAMPLE.findall(page.read_text("utf-8")))
]


def test_every_report_has_a_reproduction() -> None:
    assert len(REPORTS) == 6


@pytest.mark.parametrize(("program", "output"), REPORTS)
def test_reproductions_print_what_the_reports_say(
    program: str, output: str, tmp_path: Path
) -> None:
    script = tmp_path / "reproduction.py"
    script.write_text(program)
    command = [sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    waits = re.compile(r"\d{2,} ms")
    assert waits.sub("… ms", done.stdout) == waits.sub("… ms", output), done.stderr


def test_the_page_on_damage_states_what_tfds_loses(tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "damaged-tfrecords.md").read_text("utf-8")
    program = next(
        p for p in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M) if "write_examples" in p
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "400\n"
