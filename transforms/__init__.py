"""The Beam layer: each module is one family of PTransforms.

Keep this file free of imports: it runs before every import from `functional`, which is Beam-free.
"""
