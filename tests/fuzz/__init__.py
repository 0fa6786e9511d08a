"""Fuzzing of all readers."""

from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
"""The saved inputs, by target; importing it imports no TensorFlow, as making seeds does."""
