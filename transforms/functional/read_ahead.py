"""Calls functions in threads ahead of the consumer, and yields their results in order.

Decoding and I/O release the GIL, so threads use all cores and hide the latency of object stores.
Memory is limited by a maximum number of items, or by a byte budget for items of unknown size.
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

    An exception of `function` is raised instead of its result. Pending calls are then canceled, and
    the results of running calls are dropped.

    Args:
        function: the function.
        items: the arguments of the calls.
        executor: the threads.
        window: the maximum number of pending calls.
    """
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def fetch_ahead(
    function: Callable[[T], R],
    items: Iterable[T],
    executor: Executor,
    window: int,
    budget: Budget,
    size_of: Callable[[R], int],
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order, reading ahead within a byte budget.

    Args:
        function: the function, which mostly waits for I/O.
        items: the arguments of the calls.
        executor: the threads.
        window: the maximum number of pending calls and results.
        budget: the limit of their total size; a single item may exceed it.
        size_of: returns the size of a result in bytes.
    """

    def fetch(item: T) -> R:
        size = 0
        try:
            result = function(item)
            size = size_of(result)
        finally:
            budget.finish(size)  # a failed call has an empty result
        return result

    waiting, ahead = iter(items), deque[Future[R]]()
    try:
        while True:
            # If nothing is pending, an item is started even over the budget: otherwise a budget
            # smaller than a single item would block forever.
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
            # Released before the yield, so that calls can start while the consumer works.
            budget.release(size_of(result))
            yield result
    finally:
        for future in ahead:
            future.cancel()


class Budget:
    """A limit for the size of items read ahead, whose sizes are unknown until they are read.

    Pending items are assumed to have the mean size of all finished items.

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
        """Counts a finished item of this size as passed to the consumer."""
        with self._lock:
            self._held -= size

    def allows_more(self) -> bool:
        """Returns whether the budget allows to start another item."""
        with self._lock:
            pending = self._started - self._finished
            if not self._finished:
                return pending < _UNKNOWN_AHEAD
            # Bytes in memory, plus the pending items and the next item at the mean size so far.
            return self._held + (pending + 1) * self._total / self._finished <= self.limit


_UNKNOWN_AHEAD = 16
"""Maximum number of pending items before the size of any is known."""
