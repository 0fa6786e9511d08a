"""Renders records: images with boxes and masks, and values as text."""
