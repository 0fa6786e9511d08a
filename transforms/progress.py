"""How far the work in this process is: for a progress bar, never for the books."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Pulse:
    """Counts that workers raise as they go; retries count twice.

    Attributes:
        total: rows to convert, once the survey has counted them.
        written: records written.
        rejected: rows rejected.
        verified: records re-read.
    """

    total: int = 0
    written: int = 0
    rejected: int = 0
    verified: int = 0

    def reset(self) -> None:
        """Begins anew."""
        self.total = self.written = self.rejected = self.verified = 0


PULSE = Pulse()
"""One a process: where workers share the driver's process, it can watch."""
