"""Settings of all tests: of property tests, and of the work that Beam repeats."""

from __future__ import annotations

import os
from argparse import HelpFormatter
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

T = TypeVar("T")

try:
    from hypothesis import settings
except ImportError:  # the environment of tests/torch has none, and no property test
    pass
else:
    # No deadlines, because machines may be slow, and fixed seeds in CI.
    settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("default")


def _once_for_each_function(inspect: Callable[[Any], T]) -> Callable[[Any], T]:
    """Returns a function that inspects each function once."""
    known = dict[tuple[object, bool], T]()

    def inspected(found: object) -> T:
        # By the function of a method, which would keep its object until the end of the tests.
        function = getattr(found, "__func__", found)
        if not isinstance(function, FunctionType):
            return inspect(found)
        key = (function, function is found)
        if key not in known:
            known[key] = inspect(found)
        return known[key]

    return inspected


def _spare_work_of_beam() -> None:
    """Makes Beam spare work that it repeats for each of a thousand conversions.

    It inspects functions, looks for mistakes to warn of, notes where type hints were made, copies
    functions that it serializes later, and measures the terminal for each option that it adds to a
    parser: a third of the time of a small conversion, whose results these do not change.
    """
    from apache_beam.internal import pickler
    from apache_beam.options import pipeline_options
    from apache_beam.transforms import core, ptransform
    from apache_beam.typehints import decorators

    decorators.get_signature = core.get_signature = _once_for_each_function(
        decorators.get_signature
    )
    core.get_function_args_defaults = _once_for_each_function(core.get_function_args_defaults)
    core._check_fn_use_yield_and_return = lambda function: None
    decorators.IOTypeHints._make_origin = classmethod(lambda *_, **__: [])
    ptransform.pickler = SimpleNamespace(**{**vars(pickler), "roundtrip": lambda value: value})
    help_formatter = HelpFormatter("")
    pipeline_options._BeamArgumentParser._get_formatter = lambda _: help_formatter


with suppress(ImportError):  # the environments of tests/torch and of the reader have no Beam
    _spare_work_of_beam()


def pytest_collection_finish() -> None:
    """Collects no garbage among what is imported: a seventh of the time of a run of all tests."""
    with suppress(ImportError):  # the environment of tests/torch has no recordmill
        from recordmill.transforms.workers.process import collect_garbage

        collect_garbage()
