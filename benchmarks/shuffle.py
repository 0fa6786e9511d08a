"""Counts the bytes that cross GroupByKey on Beam's in-process runner.

Each GroupByKey of that runner collects its input in a `GroupingBuffer`, which receives the encoded
elements of the stage before: the bytes that another engine would send over the network. Combiners
are lifted, so only partial sums count. Side inputs do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer


@dataclass
class Shuffled:
    """The amount of data shuffled so far.

    Attributes:
        bytes: size of encoded keys, values and windows.
    """

    bytes: int = 0


@contextmanager
def metered_shuffle() -> Iterator[Shuffled]:
    """Counts the bytes that pipelines shuffle in the `with` block."""
    shuffled, append = Shuffled(), GroupingBuffer.append

    def counted_append(self: Any, elements_data: bytes) -> None:
        # FnApiRunner calls append() under its own lock, which also guards this count.
        shuffled.bytes += len(elements_data)
        append(self, elements_data)

    GroupingBuffer.append = counted_append
    try:
        yield shuffled
    finally:
        GroupingBuffer.append = append
