"""Imports all modules of a worker, in the process from which a pool forks its workers.

Importing them must not start a thread or open a channel, because a fork would not have it.
"""

from __future__ import annotations

import apache_beam.runners.worker.sdk_worker_main  # noqa: F401

import recordmill.pipelines.convert  # noqa: F401 - imports the transforms, too
from recordmill.transforms.verification.tensorflow_reader import load

load()
