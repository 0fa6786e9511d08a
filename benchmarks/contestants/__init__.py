"""The contestants: each a module to run, `python -m benchmarks.contestants.NAME TABLE OUTPUT`."""
