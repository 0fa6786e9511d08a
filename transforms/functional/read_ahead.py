"""Maps functions over items with threads, ahead of the consumer, and yields results in order.

Decoding and I/O release the GIL, so the threads of one process use all cores and hide the latency
of object stores. A window of items bounds memory; for items of unknown size, a byte budget does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields all items in lists of `size`; the last list may be shorter.

    Args:
        items: the items.
        size: the length of a list.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def map_ahead(
    function: Callable[[T], R], items: Iterable[T], executor: Executor, window: int
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order.

    An exception of `function` is raised in place of its result; pending calls are then canceled,
    and the results of running ones dropped.

    Args:
        function: the function.
        items: its arguments.
        executor: the threads that call it.
        window: the maximum number of calls pending at a time.
    """
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(executor.submit(function, item))
            if len(under_way) >= window:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def fetch_ahead(
    function: Callable[[T], R],
    items: Iterable[T],
    executor: Executor,
    window: int,
    budget: Budget,
    size_of: Callable[[R], int],
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order, as far ahead as a byte budget allows.

    Args:
        function: the function, which waits more than it computes.
        items: its arguments.
        executor: the threads that call it.
        window: the maximum number of results pending or waiting.
        budget: the limit of their bytes; a single item may exceed it.
        size_of: returns the bytes of a result.
    """

    def fetch(item: T) -> R:
        size = 0
        try:
            result = function(item)
            size = size_of(result)
        finally:
            budget.finish(size)  # failed calls count as empty results
        return result

    waiting, ahead = iter(items), deque[Future[R]]()
    try:
        while True:
            # With nothing pending, one item is started whatever its size: a budget smaller than a
            # single item would block forever.
            while not ahead or (len(ahead) < window and budget.allows_more()):
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                budget.start()
                ahead.append(executor.submit(fetch, item))
            if not ahead:
                return
            result = ahead.popleft().result()
            budget.release(size_of(result))  # before the yield, so that other calls can start
            yield result
    finally:
        for future in ahead:
            future.cancel()


class Budget:
    """A limit on bytes read ahead, for items whose sizes are known only once they are read.

    Pending items count with the mean size of all finished items.

    Attributes:
        limit: the limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._started = self._finished = self._held = self._total = 0

    def start(self) -> None:
        """Counts an item as pending."""
        with self._lock:
            self._started += 1

    def finish(self, size: int) -> None:
        """Counts a pending item as finished, with its size in bytes."""
        with self._lock:
            self._finished += 1
            self._total += size
            self._held += size

    def release(self, size: int) -> None:
        """Counts a finished item as taken by the consumer."""
        with self._lock:
            self._held -= size

    def allows_more(self) -> bool:
        """Returns whether another item may be started."""
        with self._lock:
            pending = self._started - self._finished
            if not self._finished:
                return pending < _UNKNOWN_AHEAD
            # Held bytes, plus the pending items and the next one at the mean size so far.
            return self._held + (pending + 1) * self._total / self._finished <= self.limit


# Maximum number of pending items before the size of any is known.
_UNKNOWN_AHEAD = 16
