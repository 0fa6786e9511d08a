"""Tests; `tests.images` draws their images."""
