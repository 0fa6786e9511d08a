"""Errors that end a run, each with its exit code.

An error in a single row is a `rejects.RecordError`, which does not end a run by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice


class RecordmillError(Exception):
    """The base class of all errors that recordmill raises for its users.

    Attributes:
        exit_code: exit code of the command.
        state: state in run.json.
    """

    exit_code = 1
    state = "failed"


class UsageError(RecordmillError):
    """Bad usage, schema or input table."""

    exit_code = 2


class VerificationFailed(RecordmillError):
    """A dataset differs from what was written or published, or its row counts do not match."""

    exit_code = 3


class RejectBudgetExceeded(RecordmillError):
    """More rows were rejected than `max_rejects` allows."""

    exit_code = 4


class SchemaError(ValueError):
    """A part of a schema is invalid in combination with another part.

    Attributes:
        location: the keys that lead to the part, from the top of the document.
    """

    def __init__(self, message: str, *location: str) -> None:
        super().__init__(message)
        self.location = location


class DatasetExists(RecordmillError):
    """The dataset is already published (`if_exists="fail"`), or another run is writing it."""

    exit_code = 5


class Interrupted(RecordmillError):
    """A signal interrupted the run; its exit code is 128 plus the signal's number, as in shells."""

    state = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


# Limits of a comparison, whose time is quadratic in the length of a name.
_MAX_LENGTH, _MAX_NAMES = 100, 10_000


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a suggestion for a message, or "" if no known name is similar.

    Args:
        name: an unknown name.
        known: the known names.

    >>> did_you_mean("lable", ["image", "label"])
    " (did you mean 'label'?)"
    """
    if len(name) > _MAX_LENGTH:
        return ""
    short = (other for other in known if len(other) <= _MAX_LENGTH)
    close = difflib.get_close_matches(name, list(islice(short, _MAX_NAMES)), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
