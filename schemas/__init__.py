"""Declarations: schemas and presets, options, records, rejects, counts, and the manifest.

The lowest layer: it imports neither Beam nor TensorFlow, and reads no user files.
"""
