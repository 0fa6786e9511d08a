"""Environment variables that TensorFlow reads at its import, and Beam as a command patches it."""

import os
from collections.abc import Iterator

import pytest

from recordmill.pipelines.engines.beam_patches import applied

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    """Runs pipelines as commands do, in half the time."""
    with applied():
        yield
