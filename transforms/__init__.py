"""Distributes the work: one PTransform family a file.

Only this docstring: Python runs this file when the pure floor below is imported.
"""
