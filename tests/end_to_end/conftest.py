"""What the end-to-end tests share: images on disk, and datasets made of them once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from tests.end_to_end.photos import Photo, draw_photos


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the images; tests write their tables into it, nothing else."""
    return tmp_path_factory.mktemp("gallery")


@pytest.fixture(scope="session")
def images(folder: Path) -> list[Photo]:
    """Twelve small images of every form that passes through, of three classes."""
    return draw_photos(folder)
