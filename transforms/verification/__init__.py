"""Verifies shards with TensorFlow, in a separate process, and locates damage in them."""
