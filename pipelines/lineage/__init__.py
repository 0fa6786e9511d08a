"""OpenLineage events of runs: what was read, what was written, and how it ended."""
