"""Writes one shard: its file, its index, its checkpoint, or a link to a base version's shard."""
