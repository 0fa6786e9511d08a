"""Works ahead on a sequence with threads, and gives the results in the sequence's order.

Pillow releases the interpreter lock while it decodes, and so does the system while it reads:
threads of one process use all cores, and hide an object store's latency. What bounds memory is a
window of so many items, and where their size is not known beforehand, a budget of bytes as well.
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
    """Yields all items in lists of `size`, the last of what is left.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def map_ahead(
    function: Callable[[T], R], items: Iterable[T], executor: Executor, window: int
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order, with at most `window` under way.

    An exception of `function` is raised where its result would have come; what was begun is then
    cancelled or left to finish, unseen.
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
    """Yields `function(item)` for each item, in order, with as many ahead as the budget allows.

    Args:
        function: what takes time rather than work.
        items: what to call it with.
        executor: the threads that wait.
        window: the most items that are under way or there.
        budget: the most bytes of them; of a single item it allows any.
        size_of: the bytes of a result.
    """

    def fetch(item: T) -> R:
        size = 0
        try:
            result = function(item)
            size = size_of(result)
        finally:
            budget.come(size)
        return result

    waiting, ahead = iter(items), deque[Future[R]]()
    try:
        while True:
            # With nothing ahead one item is begun whatever its size: of a budget that is too small
            # for a single one, nothing would ever come.
            while not ahead or (len(ahead) < window and budget.allows_more()):
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                budget.begin()
                ahead.append(executor.submit(fetch, item))
            if not ahead:
                return
            result = ahead.popleft().result()
            budget.give(size_of(result))  # before the caller works on it, so that others can begin
            yield result
    finally:
        for future in ahead:
            future.cancel()


class Budget:
    """How many bytes may be had ahead, of items whose sizes show only when they are there.

    What is under way counts with the mean size of all that came so far.

    Attributes:
        limit: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._begun = self._came = self._held = self._total = 0

    def begin(self) -> None:
        """Counts an item as under way."""
        with self._lock:
            self._begun += 1

    def come(self, size: int) -> None:
        """Counts an item that was under way as there."""
        with self._lock:
            self._came += 1
            self._total += size
            self._held += size

    def give(self, size: int) -> None:
        """Counts an item that was there as taken."""
        with self._lock:
            self._held -= size

    def allows_more(self) -> bool:
        """Returns whether another item may be begun."""
        with self._lock:
            under_way = self._begun - self._came
            if not self._came:
                return under_way < _UNKNOWN_AHEAD
            return self._held + (under_way + 1) * self._total / self._came <= self.limit


_UNKNOWN_AHEAD = 16
"""How many items may be under way before the size of any is known."""
