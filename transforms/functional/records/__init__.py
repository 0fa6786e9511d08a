"""Records of TFRecord files: encoding, framing, indexes and reading."""
