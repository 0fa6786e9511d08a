"""The tests; `tests.images` draws the pictures that they use."""
