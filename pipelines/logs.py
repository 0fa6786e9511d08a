"""What is logged: warnings that a person can act on, and nothing else."""

from __future__ import annotations

import logging

_NOISE = ("apitools not found",)  # Beam says so at import wherever its extra [gcp] is missing


def set_up_logs() -> None:
    """Logs warnings to standard error. Called before Beam is imported, which logs as it loads."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith(_NOISE))
