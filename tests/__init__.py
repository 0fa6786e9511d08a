"""The tests; `tests.images` draws the images that they use."""
