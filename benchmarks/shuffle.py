"""Counts what crosses GroupByKey on Beam's in-process runner.

Each GroupByKey of that runner collects its input in a `GroupingBuffer`, which is handed the encoded
elements as they leave the stage before: what another engine would send over its network. Combiners
are lifted before that, so only their partial sums count, as elsewhere; side inputs do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer


@dataclass
class Shuffled:
    """What was shuffled so far.

    Attributes:
        bytes: encoded keys and values, with their windows.
    """

    bytes: int = 0


@contextmanager
def metered_shuffle() -> Iterator[Shuffled]:
    """Counts what the pipelines of the body shuffle; the runner's own lock guards the count."""
    shuffled, append = Shuffled(), GroupingBuffer.append

    def counted_append(self: Any, elements_data: bytes) -> None:
        shuffled.bytes += len(elements_data)
        append(self, elements_data)

    GroupingBuffer.append = counted_append
    try:
        yield shuffled
    finally:
        GroupingBuffer.append = append
