"""The number of mutations: `./run_local.sh mutations --mutations 100000`."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutations", type=int, default=10_000, help="of a published dataset")
    parser.addoption("--seed", type=int, default=0, help="another seed, other mutations")
