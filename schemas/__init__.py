"""Declares what a dataset is: features, presets, records, config, dataset info.

The ground floor: no Beam, no TensorFlow, no input or output.
"""
