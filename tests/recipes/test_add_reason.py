"""A rejection reason is added, with an option, in the files that docs/contributing.md names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

from recordmill.schemas.rejects import Reason

ROOT = Path(__file__).parents[2]

# In each file, what is added before which line.
EDITS = {
    "schemas/rejects.py": (
        (
            '    TIMEOUT = (\n        "timeout",\n',
            '    WRONG_ASPECT = "wrong_aspect", "It is too long.", "Crop it."\n',
        ),
    ),
    "schemas/config.py": (
        (
            "    max_rejects: Budget = _checks(\n",
            "    reject_aspect: float | None = "
            '_checks(None, SHARD, "MAX", "reject images longer than this")\n',
        ),
    ),
    "transforms/functional/records/image_columns.py": (
        (
            "    if config.reject_quality:\n",
            "    longest = config.reject_aspect\n"
            "    if longest and image.width > longest * image.height:\n"
            '        raise RecordError(Reason.WRONG_ASPECT, f"expected {longest} to 1")\n',
        ),
    ),
}


def _with_reason(folder: Path) -> Path:
    """Returns a copy of the package that has one more reason, and the option."""
    package = folder / "recordmill"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "recordmill", package, ignore=ignored)  # follows the links
    for file, edits in EDITS.items():
        text = (package / file).read_text("utf-8")
        for line, added in edits:
            assert text.count(line) == 1, (file, line)
            text = text.replace(line, added + line)
        (package / file).write_text(text, "utf-8")
    return folder


def test_the_page_names_the_files() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    section = page.partition("## Add a rejection reason")[2].partition("\n## ")[0]
    assert set(re.findall(r"`((?:schemas|transforms)/\S+\.py)`", section)) == set(EDITS)
    assert "wrong_aspect" not in set(Reason), "give the test a name that is free"


def test_a_reason_and_its_option_need_no_other_file(tmp_path: Path) -> None:
    copy = _with_reason(tmp_path / "copy")
    for name, size in {"long": (90, 30), "square": (40, 40)}.items():
        (tmp_path / "images" / "a").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, "red").save(tmp_path / "images" / "a" / f"{name}.png")

    def convert(*options: str, expected: int = 0) -> str:
        files = ("--input", tmp_path / "images", "--output", tmp_path / "out", "--name", "red")
        command = [sys.executable, "-m", "recordmill", "convert", *map(str, files), *options]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=copy, check=False)
        assert ended.returncode == expected, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    printed = convert("--reject_aspect", "2", expected=4)
    assert "wrong_aspect: expected 2.0 to 1. Crop it." in printed
    convert("--reject_aspect", "2", "--max_rejects", "wrong_aspect=1")
    (dataset,) = (tmp_path / "out" / "red").iterdir()
    manifest = json.loads((dataset / "manifest.json").read_text("utf-8"))
    found = manifest["input"]
    assert (found["records"], found["reasons"]) == (1, {"wrong_aspect": 1})
    assert manifest["config"]["reject_aspect"] == 2.0
