"""Keeps TensorFlow quiet and off the GPU: it reads these as it is imported."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
