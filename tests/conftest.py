"""Settings of all tests: of property tests, and of the inspections that Beam repeats."""

from __future__ import annotations

import os
from contextlib import suppress
from inspect import Signature
from types import FunctionType

try:
    from hypothesis import settings
except ImportError:  # the environment of tests/torch has none, and no property test
    pass
else:
    # No deadlines, because machines may be slow, and fixed seeds in CI.
    settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("default")


def _inspect_once() -> None:
    """Makes Beam inspect each function once, and not for each of a thousand conversions.

    It finds signatures, looks for mistakes to warn of and notes where type hints were made: a fifth
    of the time of a small conversion, whose results these do not change.
    """
    from apache_beam.transforms import core
    from apache_beam.typehints import decorators

    inspect, known = decorators.get_signature, dict[tuple[object, bool], Signature]()

    def signature(found: object) -> Signature:
        # By the function of a method, which would keep its object until the end of the tests.
        function = getattr(found, "__func__", found)
        if not isinstance(function, FunctionType):
            return inspect(found)
        key = (function, function is found)
        if key not in known:
            known[key] = inspect(found)
        return known[key]

    decorators.get_signature = core.get_signature = signature
    core._check_fn_use_yield_and_return = lambda function: None
    decorators.IOTypeHints._make_origin = classmethod(lambda *_, **__: [])


with suppress(ImportError):  # the environments of tests/torch and of the reader have no Beam
    _inspect_once()


def pytest_collection_finish() -> None:
    """Collects no garbage among what is imported: a seventh of the time of a run of all tests."""
    with suppress(ImportError):  # the environment of tests/torch has no recordmill
        from recordmill.transforms.workers.process import collect_garbage

        collect_garbage()
