"""Rendering for people: images with boxes and masks drawn on them, text that is safe to show."""
