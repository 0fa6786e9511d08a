"""The number of mutations: `./run_local.sh mutations --mutations 100000`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutations", type=int, default=10_000, help="of a published dataset")
    parser.addoption("--seed", type=int, default=0, help="another seed, other mutations")
