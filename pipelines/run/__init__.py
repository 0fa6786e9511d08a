"""One run: its target folder, lock, run record, progress, interruption and summary."""
