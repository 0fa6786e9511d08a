"""The ways a whole run can end badly, each with its exit code.

What is wrong with a single row is a `rejects.RecordError` and never ends a run by itself.
"""

from __future__ import annotations


class RunError(Exception):
    """Ends a run with a message for a person: what, where, what was expected, what to do."""

    exit_code = 1
    state = "failed"
    """As run.json tells it."""


class UsageError(RunError):
    """Bad usage, schema or input table."""

    exit_code = 2


class ProofError(RunError):
    """Verification failed or the books do not balance."""

    exit_code = 3


class RejectBudgetExceeded(RunError):
    """More rows were rejected than `--max_rejects` allows."""

    exit_code = 4


class SchemaError(ValueError):
    """What is wrong with one part of a schema in the light of another.

    Attributes:
        place: where, as keys from the top of the document.
    """

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message)
        self.place = place


class DatasetExists(RunError):
    """A published dataset is already there (`--if_exists fail`), or a run is making it."""

    exit_code = 5


class Interrupted(RunError):
    """Ended from outside, by a signal: 128 and its number, as shells have it."""

    state = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
