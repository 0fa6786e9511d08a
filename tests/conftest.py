"""Settings of all tests: of property tests, and of the work that Beam repeats."""

from __future__ import annotations

import bz2
import gc
import os
import threading
from argparse import HelpFormatter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

T = TypeVar("T")

gc.disable()  # until all is imported, which is no garbage

# Before the first import of TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

try:
    from hypothesis import settings
except ImportError:  # the environment of tests/torch has none, and no property test
    pass
else:
    # No deadlines, because machines may be slow, and fixed seeds in CI.
    settings.register_profile(
        "default", max_examples=50, deadline=None, derandomize="CI" in os.environ
    )
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


def _once_for_each_class(inspect: Callable[[Any], T]) -> Callable[[Any], T]:
    """Returns a function that inspects one object of each class."""
    known = dict[type, T]()

    def inspected(found: object) -> T:
        if type(found) not in known:
            known[type(found)] = inspect(found)
        return known[type(found)]

    return inspected


class _InThisThread:
    """Replaces the pool of one thread that builds the steps of a bundle, and is waited for."""

    def __init__(self, **_: object) -> None: ...

    def __enter__(self) -> _InThisThread:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, call: Callable[..., T], *arguments: object) -> SimpleNamespace:
        """Calls a function; what it returns is the result of the future."""
        done = call(*arguments)
        return SimpleNamespace(result=lambda timeout: done)


def _start_without_thread(sampler: Any) -> None:
    """Starts to track the steps of a bundle, without measuring how long each takes."""
    from apache_beam.runners.worker import statesampler

    sampler.tracked_thread = threading.current_thread()
    statesampler.set_current_tracker(sampler)
    sampler.started = True


def _stop_without_thread(sampler: Any) -> None:
    from apache_beam.runners.worker import statesampler

    statesampler.set_current_tracker(None)
    sampler.finished = True


def spare_work_of_beam() -> None:
    """Makes Beam spare work that it repeats for each of a thousand conversions.

    It inspects functions, looks for mistakes to warn of, notes where type hints were made, copies
    functions that it serializes later, compresses them up to three times, lists all options to read
    one, measures the terminal for each option that it adds to a parser, and starts two threads for
    each bundle: half of the time of a small conversion, whose results these do not change.
    """
    from apache_beam.internal import cloudpickle_pickler, pickler
    from apache_beam.options import pipeline_options
    from apache_beam.runners.worker import bundle_processor, statesampler
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
    names = pipeline_options.PipelineOptions._visible_option_list
    pipeline_options.PipelineOptions._visible_option_list = _once_for_each_class(names)
    cloudpickle_pickler.bz2 = SimpleNamespace(
        compress=lru_cache(2000)(bz2.compress), decompress=lru_cache(2000)(bz2.decompress)
    )
    futures = SimpleNamespace(ThreadPoolExecutor=_InThisThread, TimeoutError=TimeoutError)
    bundle_processor.concurrent = SimpleNamespace(futures=futures)
    statesampler.StateSampler.start = _start_without_thread
    statesampler.StateSampler.stop = _stop_without_thread


# Ten times as many as in the program: a conversion takes 0.03 s less, and a process 20 MB more.
_COLLECTED_OBJECTS = 100_000


def pytest_collection_finish() -> None:
    """Prepares this process for its tests; the one that only distributes them to others has none.

    Collects no garbage among what is imported: a seventh of the time of a run of all tests.
    """
    gc.enable()
    with suppress(ImportError):  # the environments of tests/torch and of the reader have no Beam
        spare_work_of_beam()
    with suppress(ImportError):  # the environment of tests/torch has no recordmill
        from recordmill.transforms.workers.process import collect_garbage

        collect_garbage()
    gc.set_threshold(_COLLECTED_OBJECTS)
