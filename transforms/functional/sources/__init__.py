"""Sources of rows: tables, folders, archives and annotation files."""
