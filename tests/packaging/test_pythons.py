"""What differs from Python to Python: the unit tests of it, on the oldest and newest that are here.

The default tests run all of them on one; here are those of texts, numbers, addresses, types and
settings, which the standard library has a part in.
"""

from __future__ import annotations

import sys

import pytest

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.conftest import Environments, install
from tests.packaging.interpreters import interpreters

HERE = "{}.{}".format(*sys.version_info)
OTHERS = [version for version in interpreters() if version != HERE]
TESTS = (
    "addresses binding column_choice compare delimited doctests errors features framing geometry "
    "labels placement plan records rejects shard_order survey tables tar tfrecord "
    "values"
)


@pytest.mark.parametrize("version", sorted({*OTHERS[:1], *OTHERS[-1:]}))
def test_the_unit_tests_hold(version: str, environments: Environments) -> None:
    programs = environments(version, "")
    install(programs.parent, "pytest", "pytest-timeout", "hypothesis")
    files = [f"tests/unit/test_{name}.py" for name in TESTS.split()]
    told = run(
        programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, cwd=ROOT
    )
    assert " passed" in told
    assert "skipped" not in told
