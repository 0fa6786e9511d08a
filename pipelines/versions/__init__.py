"""The versions of a dataset: their list, and the deletion of some."""
