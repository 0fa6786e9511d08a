"""Tests of reading ahead: the order of results, limits, and exceptions."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional import read_ahead
from recordmill.transforms.functional.read_ahead import (
    Budget,
    fetch_ahead,
    first_results,
    map_ahead,
    map_in_threads,
)


class RunsAtOnce:
    """An executor without threads, with which a test observes when each call starts."""

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


def test_order_is_kept_when_later_items_finish_first():
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
def test_no_more_calls_than_the_window_are_pending(window):
    executor = RunsAtOnce()
    results = map_ahead(lambda item: item, range(20), executor, window)
    begun = []
    for _ in results:
        begun.append(len(executor.begun))
    assert begun == [min(taken + window, 20) for taken in range(20)]


def test_items_are_consumed_only_when_their_calls_start():
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield n

    results = map_ahead(lambda item: item, items(), RunsAtOnce(), 3)
    assert taken == []
    assert next(results) == 0
    assert taken == [0, 1, 2]


def test_an_exception_is_raised_instead_of_its_result():
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


def test_an_exception_of_the_items_is_raised():
    def items():
        yield 0
        raise ValueError("no more")

    with pytest.raises(ValueError, match=r"^no more$"):
        list(map_ahead(lambda item: item, items(), RunsAtOnce(), 4))


def test_pending_calls_are_canceled_when_the_consumer_stops():
    executor = RunsOnlyTheFirst()
    results = map_ahead(lambda item: item, range(10), executor, 3)
    assert next(results) == 0
    results.close()
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def fetched(sizes, budget, window=100, executor=None):
    """Yields (result, number of calls started) of fetch_ahead for items of some sizes."""
    executor = executor or RunsAtOnce()
    results = fetch_ahead(lambda size: size, sizes, executor, window, Budget(budget), int)
    for result in results:
        yield result, len(executor.begun)


def test_fetching_ahead_is_limited_by_bytes():
    sizes = [10] * 50
    assert list(fetched(sizes, budget=45)) == [(10, min(taken + 4, 50)) for taken in range(50)]


def test_fetching_ahead_is_limited_by_number():
    sizes = [1] * 50
    found = list(fetched(sizes, budget=10**6, window=7))
    assert found == [(1, min(taken + 7, 50)) for taken in range(50)]


def test_an_item_over_the_budget_is_fetched_alone():
    assert list(fetched([1000] * 5, budget=10)) == [(1000, taken + 1) for taken in range(5)]


def test_calls_are_limited_before_any_size_is_known(monkeypatch):
    monkeypatch.setattr(read_ahead, "_first_result", interrupt)
    executor = RunsLater()
    results = fetch_ahead(lambda size: size, range(100), executor, 96, Budget(10**9), int)
    with pytest.raises(NotDoneError):
        next(results)
    assert len(executor.begun) == 16


class NotDoneError(Exception):
    """The error for waiting on a call that never runs."""


class RunsLater:
    """An executor that never runs anything."""

    def __init__(self):
        self.begun = []

    def submit(self, function, item):
        self.begun.append(item)
        return Future()


def interrupt(*arguments):
    raise NotDoneError


@given(st.lists(st.integers(0, 50)), st.integers(1, 8), st.integers(1, 200))
def test_all_results_come_in_order_for_any_limits(sizes, window, budget):
    with ThreadPoolExecutor(3) as executor:
        results = fetch_ahead(lambda s: s, sizes, executor, window, Budget(budget), int)
        assert list(results) == sizes


def test_an_exception_of_a_fetch_is_raised_instead_of_its_result():
    def work(item):
        if item == 2:
            raise ValueError("item 2")
        return item

    results = fetch_ahead(work, range(10), RunsAtOnce(), 4, Budget(100), int)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match=r"^item 2$"):
        next(results)


class Stalling:
    """A function whose first calls of some items hang until the end of the test."""

    def __init__(self, stalled):
        self.stalled = set(stalled)
        self.calls = Counter()
        self.end = threading.Event()

    def __call__(self, item):
        self.calls[item] += 1
        if item in self.stalled and self.calls[item] == 1:
            assert self.end.wait(30)
        return item


@pytest.mark.parametrize("stalled", [0, 5, 19])
def test_a_call_that_hangs_while_others_return_is_repeated(stalled, monkeypatch):
    monkeypatch.setattr(read_ahead, "SLOW_SECONDS", 0.05)
    work, budget = Stalling([stalled]), Budget(10**6)
    with ThreadPoolExecutor(4) as executor:
        try:
            assert list(fetch_ahead(work, range(20), executor, 4, budget, int)) == [*range(20)]
        finally:
            work.end.set()
    assert work.calls == {item: 2 if item == stalled else 1 for item in range(20)}
    assert budget._held == 0  # also for the call that ended last


def test_no_call_is_repeated_while_all_of_them_are_slow(monkeypatch):
    monkeypatch.setattr(read_ahead, "SLOW_SECONDS", 0.4)
    work = Stalling(range(4))
    threading.Timer(1, work.end.set).start()
    with ThreadPoolExecutor(4) as executor:
        found = list(fetch_ahead(work, range(8), executor, 4, Budget(10**6), int))
    assert found == [*range(8)]
    assert set(work.calls.values()) == {1}


@pytest.mark.parametrize(
    ("seconds", "is_slow"),
    [
        ([0.02, 0.02, 0.02, 0.02, 0.0], True),
        ([0.02, 0.0001, 0.02, 0.02, 0.02], False),  # one that is fast, where others wait for a core
        ([0.02, 0.02], True),
        ([], False),
    ],
)
def test_the_fastest_of_the_first_calls_shows_the_latency(seconds, is_slow, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(read_ahead.time, "perf_counter", lambda: clock[0])

    def call(duration):
        clock[0] += duration
        return duration

    assert first_results(call, seconds) == (seconds[:4], is_slow)


def test_an_interrupted_program_does_not_wait_for_its_threads():
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def call(number):
        if number == 0:
            begun.wait(60)
            raise KeyboardInterrupt
        begun.set()
        release.wait(60)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        list(map_in_threads(call, [0, 1], 2))
    assert not ended.is_set()
    release.set()
    assert ended.wait(60)
