"""The ways a whole run can end badly, each with its exit code.

What is wrong with a single row is a `schemas.rejects.RecordError` and never ends a run by itself.
"""

from __future__ import annotations


class RunError(Exception):
    """Ends a run with a message for a person: what, where, what was expected, what to do."""

    exit_code = 1


class UsageError(RunError):
    """Bad usage, schema or input table."""

    exit_code = 2


class ProofError(RunError):
    """Verification failed or the books do not balance."""

    exit_code = 3


class RejectBudgetExceeded(RunError):
    """More rows were rejected than `--max_rejects` allows."""

    exit_code = 4


class DatasetExists(RunError):
    """A published dataset is already there, and `--if_exists` is `fail`."""

    exit_code = 5
