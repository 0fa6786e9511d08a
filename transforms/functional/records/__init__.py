"""Records of TFRecord files: how they are encoded, framed, indexed, and read."""
