"""The versions of a dataset: their list, base versions, removal of records, and deletion."""
