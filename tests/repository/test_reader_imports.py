"""The modules that `recordmill-reader` uses import only what its wheel requires."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Opens and reads a dataset's modules; the packages named in argv cannot be imported.
_READ = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import recordmill
assert recordmill.open and recordmill.Records and recordmill.Dataset
"""

_MODULE_OF = {
    "apache-beam": "apache_beam",
    "google-crc32c": "google_crc32c",
    "Jinja2": "jinja2",
    "tensorflow-metadata": "tensorflow_metadata",
}


def _required(project: Path) -> set[str]:
    listed = project.read_text("utf-8").partition("\ndependencies = [")[2].partition("\n]")[0]
    return set(re.findall(r'^ +"([\w-]+)', listed, re.M))


def test_reading_needs_nothing_that_the_reader_lacks() -> None:
    absent = _required(ROOT / "pyproject.toml") - _required(ROOT / "reader" / "pyproject.toml")
    modules = [_MODULE_OF.get(name, name) for name in sorted(absent)]
    command = [sys.executable, "-c", _READ, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "apache_beam" in modules
    assert "pycocotools" in modules
