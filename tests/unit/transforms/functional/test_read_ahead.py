"""Working ahead: results in order, a bounded window, and exceptions at their place."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.read_ahead import Budget, fetch_ahead, map_ahead


class RunsAtOnce:
    """An executor without threads, so that a test sees exactly what was begun, and when."""

    def __init__(self):
        self.begun = []

    def submit(self, function, item):
        self.begun.append(item)
        future = Future()
        try:
            future.set_result(function(item))
        except Exception as error:  # noqa: BLE001 - as every executor does
            future.set_exception(error)
        return future


class RunsOnlyTheFirst:
    """An executor whose work stays pending after the first item, so that it can be canceled."""

    def __init__(self):
        self.futures = []

    def submit(self, function, item):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_result(function(item))
        return self.futures[-1]


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(window, count):
    with ThreadPoolExecutor(4) as executor:
        assert list(map_ahead(lambda n: n * n, range(count), executor, window)) == [
            n * n for n in range(count)
        ]


def test_the_order_holds_when_later_items_are_done_first():
    later_done = threading.Event()

    def work(item):
        if item == 0:
            assert later_done.wait(10)
        else:
            later_done.set()
        return item

    with ThreadPoolExecutor(2) as executor:
        assert list(map_ahead(work, [0, 1], executor, 2)) == [0, 1]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_more_than_the_window_is_begun_before_a_result_is_taken(window):
    executor = RunsAtOnce()
    results = map_ahead(lambda item: item, range(20), executor, window)
    begun = []
    for _ in results:
        begun.append(len(executor.begun))
    assert begun == [min(taken + window, 20) for taken in range(20)]


def test_items_are_taken_only_as_they_are_begun():
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield n

    results = map_ahead(lambda item: item, items(), RunsAtOnce(), 3)
    assert taken == []
    assert next(results) == 0
    assert taken == [0, 1, 2]


def test_an_exception_comes_where_the_result_would_have_come():
    def work(item):
        if item == 2:
            raise ValueError("item 2")
        return item

    results = map_ahead(work, range(10), RunsAtOnce(), 4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match=r"^item 2$"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_an_exception_of_the_items_themselves_is_not_lost():
    def items():
        yield 0
        raise ValueError("no more")

    with pytest.raises(ValueError, match=r"^no more$"):
        list(map_ahead(lambda item: item, items(), RunsAtOnce(), 4))


def test_pending_calls_are_cancelled_when_the_consumer_stops():
    executor = RunsOnlyTheFirst()
    results = map_ahead(lambda item: item, range(10), executor, 3)
    assert next(results) == 0
    results.close()
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def fetched(sizes, budget, window=100, executor=None):
    """Yields (result, how many were begun) of fetch_ahead over items of these sizes."""
    executor = executor or RunsAtOnce()
    results = fetch_ahead(lambda size: size, sizes, executor, window, Budget(budget), int)
    for result in results:
        yield result, len(executor.begun)


def test_what_is_fetched_ahead_is_bounded_by_bytes():
    sizes = [10] * 50
    assert list(fetched(sizes, budget=45)) == [(10, min(taken + 4, 50)) for taken in range(50)]


def test_what_is_fetched_ahead_is_bounded_by_number():
    sizes = [1] * 50
    found = list(fetched(sizes, budget=10**6, window=7))
    assert found == [(1, min(taken + 7, 50)) for taken in range(50)]


def test_an_item_above_the_budget_is_fetched_by_itself():
    assert list(fetched([1000] * 5, budget=10)) == [(1000, taken + 1) for taken in range(5)]


def test_so_many_are_begun_before_any_size_is_known():
    executor = RunsLater()
    results = fetch_ahead(lambda size: size, range(100), executor, 96, Budget(10**9), int)
    with pytest.raises(NotDoneError):
        next(results)
    assert len(executor.begun) == 16


class NotDoneError(Exception):
    """Asked for the result of work that nobody does."""


class RunsLater:
    """An executor that never runs anything."""

    def __init__(self):
        self.begun = []

    def submit(self, function, item):
        self.begun.append(item)
        future = Future()
        future.result = self.interrupt
        return future

    def interrupt(self):
        raise NotDoneError


@given(st.lists(st.integers(0, 50)), st.integers(1, 8), st.integers(1, 200))
def test_whatever_the_bounds_all_come_in_order(sizes, window, budget):
    with ThreadPoolExecutor(3) as executor:
        results = fetch_ahead(lambda s: s, sizes, executor, window, Budget(budget), int)
        assert list(results) == sizes


def test_an_exception_of_a_fetch_comes_where_its_result_would_have_come():
    def work(item):
        if item == 2:
            raise ValueError("item 2")
        return item

    results = fetch_ahead(work, range(10), RunsAtOnce(), 4, Budget(100), int)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match=r"^item 2$"):
        next(results)
