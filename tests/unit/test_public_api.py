"""The public API, recordmill/__init__.py: complete, lazy, documented, and nothing else."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import recordmill

IMPORT = """
import sys, time
before = time.perf_counter()
import recordmill
seconds = time.perf_counter() - before
loaded = {name.partition(".")[0] for name in sys.modules}
print(loaded.isdisjoint({"apache_beam", "tensorflow", "pyarrow", "pydantic", "PIL"}), seconds)
"""


def test_importing_loads_no_library_and_takes_no_time() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    ).stdout.split()
    assert printed[0] == "True"
    assert float(printed[1]) < 0.3


@pytest.mark.parametrize("name", recordmill.__all__)
def test_each_name_is_there_with_its_documentation(name: str) -> None:
    found = getattr(recordmill, name)
    if name != "__version__":
        assert inspect.getdoc(found)
        assert found.__module__.startswith("recordmill.")


def test_what_type_checkers_see_is_what_is_there() -> None:
    source = Path(recordmill.__file__ or "").read_text()
    block, _ = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(recordmill.__all__) == {*seen, "__version__"}
    for name, (module, original) in seen.items():
        assert getattr(import_module(str(module)), original) is getattr(recordmill, name)
    assert set(recordmill.__all__) <= set(dir(recordmill))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'recordmill' has no attribute 'nothing'"):
        _ = recordmill.nothing


CONVERT = """
import recordmill
try:
    recordmill.convert("missing.csv", output="out", name="x")
except recordmill.UsageError as error:
    print(error.__suppress_context__, error.__cause__)
"""


def test_a_usage_error_has_no_chain_and_importing_beam_logs_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CONVERT], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert (ended.stdout, ended.stderr) == ("True None\n", "")
