"""How far the work in this process is: for a progress bar, never for the books."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Pulse:
    """Counts that workers raise as they go; retries count twice.

    Attributes:
        surveyed: rows looked at.
        total: all rows, once the survey has counted them.
        placed: rows placed in a shard, or rejected before.
        written: records written.
        rejected: rows rejected while records were written.
        verified: records re-read.
    """

    surveyed: int = 0
    total: int = 0
    placed: int = 0
    written: int = 0
    rejected: int = 0
    verified: int = 0

    def reset(self) -> None:
        """Begins anew."""
        self.__init__()  # type: ignore[misc]


PULSE = Pulse()
"""One a process: where workers share the driver's process, it can watch."""
