"""Fixtures: images on disk, drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.photos import Photo, draw_photos


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the images; tests write only tables into it."""
    return tmp_path_factory.mktemp("gallery")


@pytest.fixture(scope="session")
def images(folder: Path) -> list[Photo]:
    """Twelve small images of three classes, in every form that is stored unchanged."""
    return draw_photos(folder)
