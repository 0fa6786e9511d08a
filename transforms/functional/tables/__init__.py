"""Rows of tables: how they are read, which of their columns are taken, how two are joined."""
