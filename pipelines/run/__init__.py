"""One run: its target folder, its lock, its record, how it is interrupted, and its summary."""
