"""Pipelines: options, the graph of a conversion, publishing, and the command line."""
