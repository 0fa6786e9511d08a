"""Maps functions over items with threads, ahead of the consumer, and yields results in order.

Decoding and I/O release the GIL, so the threads of one process use all cores and hide the latency
of object stores and network file systems. A window of items bounds memory; for items of unknown
size, a byte budget does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Any, TypeVar

SLOW_SECONDS = 5.0
"""Wait for a result before its call is repeated; a hundred times what a store usually takes."""

# Calls that show the latency of a file system, and the seconds that none on a local disk takes: one
# takes 0.1 ms with a file in the page cache, and up to 0.5 ms with one on a solid-state disk.
_PROBED, _SLOW_CALL = 4, 0.001

# Threads that wait for a file system or store, not for a core.
_REQUESTS = 16

# Pending items per thread, so that none idles while the consumer takes the results.
_ITEMS_PER_THREAD = 4

T = TypeVar("T")
R = TypeVar("R")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields all items in lists of `size`; the last list may be shorter.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def first_results(function: Callable[[T], R], items: Sequence[T]) -> tuple[list[R], bool]:
    """Calls an I/O-bound function with the first few items, one after the other.

    Also returns whether even the fastest call took longer than a local disk needs: then the files
    are in a network file system, for which threads should read ahead.
    """
    results, seconds = list[R](), list[float]()
    for item in items[:_PROBED]:
        start = time.perf_counter()
        results.append(function(item))
        seconds.append(time.perf_counter() - start)
    return results, min(seconds, default=0.0) > _SLOW_CALL


class Pending(deque["Future[R]"]):
    """Calls whose results are taken in order."""

    def results(self, most: int) -> Iterator[R]:
        """Yields the oldest results: those that are ready, and until at most so many are pending.

        An exception of a call is raised in place of its result.
        """
        while self and (len(self) > most or self[0].done()):
            yield self.popleft().result()


def map_ahead(
    function: Callable[[T], R], items: Iterable[T], executor: Executor, window: int
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order.

    An exception of `function` is raised in place of its result; pending calls are then canceled,
    and the results of running ones dropped.
    """
    pending = Pending[R]()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        yield from pending.results(0)
    finally:
        for future in pending:
            future.cancel()


def map_in_threads(
    function: Callable[[T], R], items: Iterable[T], threads: int = _REQUESTS
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order, as `map_ahead`, with threads of its own.

    `threads`: for an I/O-bound function, the default; else the number of cores.
    """
    executor = ThreadPoolExecutor(threads)
    try:
        yield from map_ahead(function, items, executor, _ITEMS_PER_THREAD * threads)
    finally:
        # An interrupted program does not wait: a silent host may take minutes.
        executor.shutdown(wait=sys.exc_info()[0] is not KeyboardInterrupt)


class Inline(Executor):
    """Immediate calls: on one core, a thread of its own would only wait for the GIL."""

    def submit(self, function: Callable[..., R], /, *arguments: Any, **named: Any) -> Future[R]:
        """Returns a finished call."""
        call = Future[R]()
        try:
            call.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - raised by whoever takes the result
            call.set_exception(error)
        return call


def fetch_ahead(
    function: Callable[[T], R],
    items: Iterable[T],
    executor: Executor,
    window: int,
    budget: Budget,
    size_of: Callable[[R], int],
) -> Iterator[R]:
    """Yields `function(item)` for each item, in order, as far ahead as a byte budget allows.

    A call that hangs while later ones return is made a second time, and the first result counts:
    one slow object does not hold up all others. A single item may exceed the budget.
    """
    fetch = partial(_fetch, function, budget, size_of)

    def release(call: Future[R]) -> None:
        budget.release(0 if call.exception() else size_of(call.result()))

    waiting, ahead = iter(items), deque[tuple[T, Future[R]]]()
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
                ahead.append((item, executor.submit(fetch, item)))
            if not ahead:
                return
            item, call = ahead.popleft()
            result = _first_result(
                call, [later for _, later in ahead], partial(executor.submit, function, item)
            )
            call.add_done_callback(release)  # before the yield, so that other calls can start
            yield result
    finally:
        for _, call in ahead:
            call.cancel()


def _fetch(function: Callable[[T], R], budget: Budget, size_of: Callable[[R], int], item: T) -> R:
    size = 0
    try:
        result = function(item)
        size = size_of(result)
    finally:
        budget.finish(size)  # failed calls count as empty results
    return result


def _first_result(
    call: Future[R], later: Sequence[Future[R]], repeat: Callable[[], Future[R]]
) -> R:
    """Returns the result of a call, or of its repetition if that is faster."""
    while not (call.done() or wait([call], SLOW_SECONDS).done):
        # If the others hang, too, the network is slow, and more requests would make it slower.
        if 2 * sum(other.done() for other in later) >= len(later):
            done, _ = wait([call, repeat()], return_when=FIRST_COMPLETED)
            return done.pop().result()
    return call.result()


class Budget:
    """A limit on bytes read ahead, for items whose sizes are known only once they are read.

    Pending items count with the mean size of all finished items.
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
