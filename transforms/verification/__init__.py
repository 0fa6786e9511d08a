"""Verifies shards in a separate process, with TensorFlow as the parser, and locates damage."""
