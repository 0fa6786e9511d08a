"""Rows: maps columns to features, and assigns records to splits and shards."""
