"""The terminal: streams, printing and logs."""
