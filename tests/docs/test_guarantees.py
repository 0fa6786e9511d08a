"""guarantees.md names tests for each promise, and all of them exist.

A reviewer decides whether a test covers its promise.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/guarantees.md").read_text("utf-8")
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]


def files_of(path: Path) -> list[Path]:
    """Returns the test files of a name."""
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def test_every_promise_names_its_threats_and_tests() -> None:
    promises = [row for row in ROWS if row[0].strip() != "promise"]
    assert len(promises) >= 15
    for promise, against, shown_by in promises:
        assert against.strip(), promise
        assert "`tests/" in shown_by, promise


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]*)`", PAGE))
    assert len(named) >= 20
    for name in sorted(named):
        found = files_of(ROOT / name)
        assert found, name
        for path in found:
            assert re.search(r"^(async )?def test_", path.read_text("utf-8"), re.M), path


def test_every_threat_has_a_description() -> None:
    threats = PAGE.partition("## Threats")[2].partition("\n## ")[0]
    assert threats.count("\n- **") >= 6
