"""What every worker needs, imported once, by the process from which a pool forks its workers.

Nothing here may start a thread, nor open a channel: neither would be there in a fork.
"""

from __future__ import annotations

import apache_beam.runners.worker.sdk_worker_main  # noqa: F401

import recordmill.pipelines.convert  # noqa: F401 - the transforms, and all that they import
from recordmill.transforms.verification.tensorflow_reader import tensorflow

tensorflow()
