"""The baselines, one per module: `python -m benchmarks.baselines.NAME TABLE OUTPUT`."""
