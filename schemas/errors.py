"""The ways a whole run can end badly, each with its exit code.

What is wrong with a single row is a `rejects.RecordError` and never ends a run by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice


class RecordmillError(Exception):
    """Ends a run with a message for a person: what, where, what was expected, what to do.

    The base class of all errors that recordmill raises for its users.

    Attributes:
        exit_code: of the command line.
        state: of run.json.
    """

    exit_code = 1
    state = "failed"


class UsageError(RecordmillError):
    """Bad usage, schema or input table."""

    exit_code = 2


class VerificationFailed(RecordmillError):
    """A dataset is not what was written or published, or its row counts do not match."""

    exit_code = 3


class RejectBudgetExceeded(RecordmillError):
    """More rows were rejected than `max_rejects` allows."""

    exit_code = 4


class SchemaError(ValueError):
    """Raised for a part of a schema that is invalid in combination with another part.

    Attributes:
        place: where, as keys from the top of the document.
    """

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message)
        self.place = place


class DatasetExists(RecordmillError):
    """A published dataset is already there (`if_exists="fail"`), or a run is making it."""

    exit_code = 5


class Interrupted(RecordmillError):
    """Ended from outside, by a signal: 128 and its number, as shells have it."""

    state = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


_MAX_LENGTH, _MAX_NAMES = 100, 10_000
"""What is compared: a guess is worth some seconds, and each takes the square of its length."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a guess for a message, or "" if no known name is close.

    >>> did_you_mean("lable", ["image", "label"])
    " (did you mean 'label'?)"
    """
    if len(name) > _MAX_LENGTH:
        return ""
    short = (other for other in known if len(other) <= _MAX_LENGTH)
    close = difflib.get_close_matches(name, list(islice(short, _MAX_NAMES)), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
