"""The modules that `recordmill-reader` uses import only what its wheel requires."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

# Opens and reads a dataset's modules; the packages named in argv cannot be imported.
_READ = """
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent)
import recordmill
assert recordmill.open and recordmill.Records and recordmill.Dataset
"""


def _with_requirements(names: list[str]) -> set[str]:
    """Returns distributions with all that they require, without extras."""
    found = set[str]()
    while names:
        name = canonicalize_name(names.pop())
        if name in found:
            continue
        found.add(name)
        try:
            needed = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # of another platform
            continue
        names += [
            one.name for one in needed if not one.marker or one.marker.evaluate({"extra": ""})
        ]
    return found


def test_reading_needs_nothing_that_the_reader_lacks() -> None:
    project = (ROOT / "reader" / "pyproject.toml").read_text("utf-8")
    listed = project.partition("\ndependencies = [")[2].partition("\n]")[0]
    known = _with_requirements(re.findall(r'^ +"([\w-]+)', listed, re.M)) | {"recordmill"}
    absent = [
        module
        for module, packages in packages_distributions().items()
        if known.isdisjoint(map(canonicalize_name, packages)) and module.isidentifier()
    ]
    assert {"apache_beam", "tensorflow", "pycocotools"} <= set(absent)
    command = [sys.executable, "-c", _READ, *absent]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
