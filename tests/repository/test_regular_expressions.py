"""Every regular expression of the product takes linear time on any text."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator

import pytest

import recordmill

LENGTH = 10_000
"""At which quadratic work takes a second, and linear work less than milliseconds."""

MOST_SECONDS = 0.125
"""Of this thread's own CPU time, so that a busy machine does not matter."""

PARTS = (
    *("1", "a", ".", "/", "-", "_", " ", "=", "&", "?", ";", "%", "@", "#", ":", "\\", '"', "'"),
    *("1.", ".1", "a.", "a-", "-1", "/a", "a/", "a=", "&a", "?&", "e1", "../", "/a/../", "%2e"),
    *("http://", "http://a", "http://@", "http:// ", 'log_location: "', 'error: "', "-1-of-1"),
    *("<Code>a", "HTTP ", "label", "Error", "aError", "a.Error", "ispe\0\0\0\0", "\xff", "\n"),
)
STARTS = ("", "http://h/?=a&", "-a.tfrecord")
ENDS = ("", "!")


def expressions() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Yields each expression that a module compiles at import, and whether it is searched for."""
    for found in pkgutil.walk_packages(recordmill.__path__, "recordmill."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                searched = re.search(rf"\b{name}\.(?!match|fullmatch)", source) is not None
                yield f"{found.name}.{name}", as_text(value), searched


def as_text(pattern: re.Pattern[str] | re.Pattern[bytes]) -> re.Pattern[str]:
    if isinstance(pattern.pattern, str):
        return pattern
    return re.compile(pattern.pattern.decode("latin-1"), pattern.flags)


FOUND = {name: (pattern, searched) for name, pattern, searched in expressions()}


def test_the_expressions_of_addresses_are_found() -> None:
    some = {"schemas.masking._URL", "transforms.functional.values.typed._NUMBER"}
    assert {f"recordmill.{name}" for name in some} <= FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_an_expression_takes_linear_time(name: str) -> None:
    pattern, searched = FOUND[name]
    uses = (pattern.fullmatch, pattern.match, *([pattern.search] if searched else []))
    for start, part, end in itertools.product(STARTS, PARTS, ENDS):
        text = start + part * (LENGTH // len(part)) + end
        for use in uses:
            began = time.thread_time()
            use(text)
            assert time.thread_time() - began < MOST_SECONDS, (use.__name__, start, part, end)
