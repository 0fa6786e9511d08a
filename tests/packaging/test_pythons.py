"""Unit tests that depend on the Python version, on the oldest and newest installed ones.

The default tests run all of them on one; here are those of texts, numbers, addresses, types and
settings, which depend on the standard library.
"""

from __future__ import annotations

import pytest

from tests.deploy.runs.environments import ROOT, run
from tests.packaging.conftest import Environments, install
from tests.packaging.interpreters import HERE, interpreters

OTHERS = [version for version in interpreters() if version != HERE]
TESTS = """
repository/test_doctests.py
unit/schemas/test_errors.py
unit/schemas/test_features.py
unit/schemas/test_plan.py
unit/schemas/test_records.py
unit/schemas/test_rejects.py
unit/schemas/test_tables.py
unit/transforms/functional/images/test_geometry.py
unit/transforms/functional/records/test_framing.py
unit/transforms/functional/rows/test_analysis.py
unit/transforms/functional/rows/test_binding.py
unit/transforms/functional/rows/test_columns_projection.py
unit/transforms/functional/rows/test_class_names.py
unit/transforms/functional/rows/test_placement.py
unit/transforms/functional/sources/test_delimited.py
unit/transforms/functional/sources/test_webdataset_tar.py
unit/transforms/functional/sources/test_tfrecord.py
unit/transforms/functional/test_compare.py
unit/transforms/functional/values/test_typed.py
unit/transforms/functional/test_addresses.py
"""


@pytest.mark.parametrize("version", sorted({*OTHERS[:1], *OTHERS[-1:]}))
def test_the_unit_tests_pass(version: str, environments: Environments) -> None:
    programs = environments(version, "")
    install(programs.parent, "pytest", "pytest-timeout", "hypothesis")
    files = [f"tests/{name}" for name in TESTS.split()]
    output = run(
        programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, cwd=ROOT
    )
    assert " passed" in output
    assert "skipped" not in output
