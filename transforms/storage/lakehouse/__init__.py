"""Resolves tables of Delta Lake and Apache Iceberg to the data files of one snapshot."""
