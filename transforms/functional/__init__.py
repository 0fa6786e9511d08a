"""Pure functions on one record or one shard, without Beam or TensorFlow."""
