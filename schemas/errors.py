"""Errors that end a run, each with its exit code.

An error in a single row is a `rejects.RecordError`, which does not end a run by itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class RecordmillError(Exception):
    """The base class of all errors that recordmill raises for its users.

    Attributes:
        exit_code: exit code of the command.
        state: state in run.json.
        reject_reasons: number of rejected rows by reason; empty if none was read.
        first_rejects: the first reject of each reason, as in `rejects/`: `key`, `uri`, `source`,
            `reason` and `detail`.
        directory: the folder with `run.json`, `rejects/` and `report.html` of the failed run; "" if
            it ended before it wrote anything.
    """

    exit_code = 1
    state = "failed"

    def __init__(
        self,
        message: str = "",
        reject_reasons: Mapping[str, int] = MappingProxyType({}),
        first_rejects: Sequence[Mapping[str, Any]] = (),
        directory: str = "",
    ) -> None:
        self.reject_reasons = dict(reject_reasons)  # a mappingproxy cannot be pickled
        self.first_rejects: Sequence[Mapping[str, Any]] = tuple(first_rejects)
        self.directory = directory
        # Beam raises an error of a step again, made of its arguments.
        of_run = (self.reject_reasons, self.first_rejects, directory)
        super().__init__(message, *(of_run if any(of_run) else ()))

    def __str__(self) -> str:
        return str(self.args[0])


class UsageError(RecordmillError):
    """Bad usage, schema or input table."""

    exit_code = 2


def not_in_reader(name: str, error: ImportError) -> str:
    """Describes that `name` needs a package that `recordmill-reader` does not require."""
    return (
        f"{name}: needs {error.name}, which is not installed. "
        "Install recordmill in place of recordmill-reader"
    )


class VerificationFailed(RecordmillError):
    """A dataset differs from what was written or published, or its row counts do not match.

    Attributes:
        verification: the counts and problems that `verify` found; None for other causes.
    """

    exit_code = 3
    verification: Any = None


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


# What a value should be, by pydantic's type of error; in braces, the values of its context.
_EXPECTED = {
    "literal_error": "{expected}",
    "enum": "{expected}",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "names with their values",
    "model_type": "names with their values",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "too_short": "at least {min_length} values",
    "too_long": "at most {max_length} values",
    "string_too_short": "text",
    "string_pattern_mismatch": "text of the form {pattern}",
}


_QUOTES = "'\""


def problem_of_value(details: ErrorDetails, shown: str) -> str:
    """Returns the message on a value that a model rejects, in our words instead of pydantic's."""
    message = details["msg"].removeprefix("Value error, ")
    expected = _EXPECTED.get(details["type"])
    if expected is None:
        return message
    context = details.get("ctx", {})
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    guess = did_you_mean(shown.strip(_QUOTES), choices)
    return f"expected {expected.format(**context)}, got {shown}{guess}"


# Limits of a comparison, whose time is quadratic in the length of a name.
_MAX_LENGTH, _MAX_NAMES = 100, 10_000


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a suggestion for a message, or "" if no known name is similar.

    >>> did_you_mean("lable", ["image", "label"])
    " (did you mean 'label'?)"
    """
    if len(name) > _MAX_LENGTH:
        return ""
    short = (other for other in known if len(other) <= _MAX_LENGTH)
    close = difflib.get_close_matches(name, list(islice(short, _MAX_NAMES)), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
