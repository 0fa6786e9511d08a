"""`recordmill inspect`: what is in TFRecord files, on a terminal and as an image."""
