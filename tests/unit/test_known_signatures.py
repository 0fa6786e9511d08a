"""A signature that is known is the one that Beam would find."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref

import pytest
from apache_beam.transforms import core
from apache_beam.typehints.decorators import get_signature

from pipelines.engines.known_signatures import known_signature


class Kind:
    def method(self, one: int, *, two: str = "b") -> bool:
        return bool(one and two)

    @classmethod
    def of_class(cls, one: int) -> None: ...

    @staticmethod
    def of_none(one: int) -> None: ...


def plain(one: int, two: float = 0.5, *rest: int, **more: str) -> str:
    return str((one, two, rest, more))


FUNCTIONS = [
    plain,
    Kind.method,
    Kind().method,
    Kind.of_class,
    Kind.of_none,
    lambda x: x,
    functools.partial(plain, 1),
    functools.wraps(plain)(lambda *args: None),
    Kind,
    str.upper,
    "x".upper,
    dict.get,
    len,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_it_is_the_one_that_beam_finds(function) -> None:
    found = get_signature(function)
    assert known_signature(function) == found
    assert known_signature(function) == found


def test_a_bound_and_an_unbound_method_differ() -> None:
    assert list(known_signature(Kind.method).parameters) == ["self", "one", "two"]
    assert list(known_signature(Kind().method).parameters) == ["one", "two"]


def test_a_function_is_inspected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known_signature(plain)
    monkeypatch.setattr(inspect, "signature", None)
    assert list(known_signature(plain).parameters) == ["one", "two", "rest", "more"]


def test_functions_are_not_kept_alive() -> None:
    def short_lived() -> None: ...

    known_signature(short_lived)
    seen = weakref.ref(short_lived)
    del short_lived
    gc.collect()
    assert seen() is None


def test_beam_asks_it() -> None:
    assert core.get_signature is known_signature
