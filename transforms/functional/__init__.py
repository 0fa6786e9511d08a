"""Computes: pure functions on one record or one shard. No Beam, no TensorFlow."""
