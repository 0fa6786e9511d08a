"""Working ahead: results in order, a bounded window, and exceptions at their place."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from transforms.functional.read_ahead import map_ahead


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
    """An executor whose work stays pending after the first item, so that it can be cancelled."""

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


def test_what_was_begun_is_cancelled_when_nobody_wants_it():
    executor = RunsOnlyTheFirst()
    results = map_ahead(lambda item: item, range(10), executor, 3)
    assert next(results) == 0
    results.close()
    assert [future.cancelled() for future in executor.futures] == [False, True, True]
