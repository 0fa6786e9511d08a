"""Beam metrics, which engines show for each step of a job; row counts never rely on them.

Engines count a retried bundle again, and lose the metrics of a driver that dies.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from apache_beam.metrics.metric import Metrics

NAMESPACE = "recordmill"

T = TypeVar("T")


# Beam looks up the step at each call, by the thread: all threads and steps can share these objects.
@cache
def counter(name: str) -> Metrics.DelegatingCounter:
    """Returns a counter of whatever step the calling thread executes; in other threads, of none."""
    return Metrics.counter(NAMESPACE, name)


@cache
def _distribution(name: str) -> Metrics.DelegatingDistribution:
    """Returns a distribution of a step, as `counter` does; its name ends with the unit."""
    return Metrics.distribution(NAMESPACE, name)


# The values that `observe` keeps in a process without steps, until `take_observed`; None if it has
# steps.
_observed: dict[str, list[int]] | None = None


def observe(name: str, *values: int) -> None:
    """Updates a distribution of the step that the calling thread executes."""
    if _observed is not None:
        _observed.setdefault(name, []).extend(values)
        return
    for value in values:
        _distribution(name).update(value)


def take_observed() -> dict[str, list[int]]:
    """Returns the values of each distribution since the last call.

    The first call makes this a process without steps: another one reports its values.
    """
    global _observed
    taken, _observed = _observed or {}, {}
    return taken


class Measurements:
    """Measurements of threads that work for a step, until the step's own thread reports them.

    Beam finds the step of a metric by the thread: in other threads it would be lost.
    """

    def __init__(self) -> None:
        self._values: deque[tuple[str, int]] = deque()

    def add(self, name: str, value: int) -> None:
        """Adds a value, from any thread."""
        self._values.append((name, value))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the microseconds that the body takes."""
        start = time.perf_counter_ns()
        yield
        self.add(name, (time.perf_counter_ns() - start) // 1000)

    def reported(self, results: Iterable[T]) -> Iterator[T]:
        """Yields the results of the threads, and reports the values that were added meanwhile."""
        for result in results:
            while self._values:
                observe(*self._values.popleft())
            yield result
