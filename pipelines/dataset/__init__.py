"""What reads a published dataset: verify, load, records and diff."""
