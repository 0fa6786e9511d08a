"""Simulates conversions on 1 to 1,000 workers and their cost: `python -m benchmarks.scaling`."""
