"""The two ways that a row can go: on, or to the rejects."""

from __future__ import annotations

from typing import Any, NamedTuple

from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.rejects import Reject

REJECTS = "rejects"


class Outcome(NamedTuple):
    """What a transform makes of rows.

    Attributes:
        good: what goes on.
        rejects: the dead letters.
    """

    good: PCollection[Any]
    rejects: PCollection[Reject]


def rejected(reject: Reject) -> TaggedOutput:
    """Returns a reject as a DoFn emits it, beside its main output."""
    return TaggedOutput(REJECTS, reject)
