"""Rows: how columns map to features, and where each record belongs."""
