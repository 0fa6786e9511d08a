"""Runs the examples in docstrings of the pure packages."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import recordmill.schemas
import recordmill.transforms.functional

MODULES = sorted(
    info.name
    for package in (recordmill.schemas, recordmill.transforms.functional)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_doctests_are_found():
    finder = doctest.DocTestFinder()
    found = {
        name
        for name in MODULES
        if any(test.examples for test in finder.find(importlib.import_module(name)))
    }
    assert {"recordmill.schemas.layout", "recordmill.transforms.functional.rows.placement"} <= found
