"""Writes one shard: its file, its index and its checkpoint, or a link to a base version's shard."""
