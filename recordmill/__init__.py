"""Converts image manifests and label tables to verified TFRecord datasets, on Apache Beam."""
