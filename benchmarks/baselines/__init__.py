"""The baselines: each a module to run, `python -m benchmarks.baselines.NAME TABLE OUTPUT`."""
