"""Runs: options, the graph, publishing, the command line."""
