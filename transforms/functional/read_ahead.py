"""Works ahead on a sequence with threads, and gives the results in the sequence's order.

Pillow releases the interpreter lock while it decodes, and so does the system while it reads:
threads of one process use all cores, and hide an object store's latency. The window bounds memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields all items in lists of `size`, the last of what is left.

    >>> list(in_groups("abcde", 2))
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
