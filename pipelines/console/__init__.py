"""Console output: standard streams, the terminal, and logs."""
