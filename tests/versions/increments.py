"""Compares increments with one conversion of all rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.end_to_end.command import recordmill


def manifest(dataset: Path) -> dict[str, Any]:
    """Returns the manifest of a dataset."""
    found: dict[str, Any] = json.loads((dataset / "manifest.json").read_bytes())
    return found


def assert_is_one_conversion(one: Path, other: Path, *, lakehouse: bool = False) -> None:
    """Asserts that an increment has the files of one conversion, as docs/how-to/increments.md.

    Args:
        one: the dataset of one conversion.
        other: the increment.
        lakehouse: whether the input is a lakehouse table, the same for both.
    """
    names = {str(p.relative_to(d)) for d in (one, other) for p in d.rglob("*") if p.is_file()}
    same = {n for n in names if (one / n).read_bytes() == (other / n).read_bytes()}
    assert names - same == {"_SUCCESS", "manifest.json", "run.json"}
    before, after = manifest(one), manifest(other)
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == {"config", "fingerprint", "base"} | ({"source"} if lakehouse else set())
    config = {name for name, value in after["config"].items() if value != before["config"][name]}
    assert config == {"base", "append"} | (set() if lakehouse else {"inputs"})
    if lakehouse:
        assert after["source"]["snapshots"] == before["source"]["snapshots"]
    assert recordmill("verify", other, "--decode").code == 0
