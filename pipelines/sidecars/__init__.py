"""The files that describe a published dataset to other tools."""
