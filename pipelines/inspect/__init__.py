"""`recordmill inspect`: shows the records of TFRecord files on a terminal or as an image."""
