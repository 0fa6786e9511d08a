"""The patches of Beam return what Beam itself would compute."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass

import apache_beam as beam
import pytest
from apache_beam.coders import Coder, VarIntCoder, registry
from apache_beam.options.pipeline_options import DebugOptions, DirectOptions, PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    ControlConnection,
    WorkerHandler,
)
from apache_beam.runners.worker import sdk_worker, statesampler
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.utils.counters import CounterFactory

from recordmill.pipelines.engines import beam_patches
from recordmill.pipelines.engines.beam_patches import (
    WatchedWorkerHandler,
    _answer_for_dead_worker,
    _cached_specs,
    _cached_view,
    _print_nothing,
    applied,
)


def plain(one: int) -> str:
    return str(one)


def test_views_share_values_and_are_created_once() -> None:
    options = PipelineOptions(["--direct_num_workers=3", "--experiments=a"])
    view = _cached_view(options, DirectOptions)
    assert view.direct_num_workers == 3
    assert _cached_view(options, DirectOptions) is view
    view.direct_num_workers = 5
    assert options.view_as(DirectOptions).direct_num_workers == 5
    assert _cached_view(view, DebugOptions).experiments == ["a"]


def test_unpickled_options_have_their_own_views() -> None:
    options = PipelineOptions(["--direct_num_workers=3"])
    _cached_view(options, DirectOptions)
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own
    _cached_view(copy, DirectOptions).direct_num_workers = 7
    assert _cached_view(options, DirectOptions).direct_num_workers == 3
    assert _cached_view(copy, DirectOptions).direct_num_workers == 7


def test_views_follow_replaced_options() -> None:
    options = PipelineOptions(["--direct_num_workers=3"])
    _cached_view(options, DirectOptions)
    options._all_options = {"direct_num_workers": 9}
    assert _cached_view(options, DirectOptions).direct_num_workers == 9


class Stateful(beam.DoFn):
    SPEC = CombiningValueStateSpec("seen", VarIntCoder(), sum)

    def process(self, element, seen=beam.DoFn.StateParam(SPEC)): ...  # noqa: B008 - as Beam has it


@dataclass
class WithoutHash(beam.DoFn):
    size: int = 1


@pytest.mark.parametrize(
    ("dofn", "is_stateful"),
    [
        (Stateful(), True),
        (WithoutHash(), False),
        (core.CallableWrapperDoFn(plain), False),
        (core.CallableWrapperDoFn(Stateful().process), True),
    ],
)
def test_cached_specifications_are_those_of_beam(dofn: beam.DoFn, is_stateful: bool) -> None:
    found = beam_patches._find_specs(dofn)
    assert _cached_specs(dofn) == found
    assert _cached_specs(dofn) == found
    assert bool(found[0]) == is_stateful


def patched() -> list[object]:
    return [
        PipelineOptions.view_as,
        userstate.get_dofn_specs,
        vars(sdk_worker).get("print"),
        WorkerHandler._registered_environments[python_urns.SUBPROCESS_SDK][0],
        worker_handlers.DATA_BUFFER_TIME_LIMIT_MS,
        worker_handlers.STATE_CACHE_SIZE_MB,
    ]


def test_patches_apply_only_while_the_body_runs() -> None:
    ours = [
        _cached_view,
        _cached_specs,
        _print_nothing,
        WatchedWorkerHandler,
        0,
        0,
    ]
    before = patched()
    with applied():
        assert patched() == ours
        with applied():
            assert patched() == ours
        assert patched() == ours
    assert patched() == before


class SlowCoder(Coder):
    """Takes longer for one number than Beam's runner waits before it sends what it has."""

    def encode(self, value: int) -> bytes:
        if value == 1:
            time.sleep(1.05)
        return bytes([value])

    def decode(self, encoded: bytes) -> int:
        return encoded[0]


class Slow(int): ...


def test_the_end_of_a_bundle_waits_for_a_sample_of_a_few_milliseconds() -> None:
    with applied():
        sampler = statesampler.StateSampler("bundle", CounterFactory())
    assert (sampler.sampling_period_ms, sampler.stage_name) == (10, "bundle")


def test_threads_send_whole_elements_however_long_one_takes() -> None:
    registry.register_coder(Slow, SlowCoder)
    options = PipelineOptions(["--direct_running_mode=multi_threading"])
    with applied(), beam.Pipeline("FnApiRunner", options=options) as pipeline:
        grouped = (
            pipeline
            | beam.Create([0, 1])
            | beam.Map(lambda i: ("key", Slow(i))).with_output_types(tuple[str, Slow])
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, numbers: (key, sorted(numbers)))
        )
        assert_that(grouped, equal_to([("key", [0, 1])]))


def test_pending_and_later_requests_to_a_dead_worker_fail() -> None:
    connection = ControlConnection()
    asked = connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="asked"))
    _answer_for_dead_worker(connection, "it died")
    later = connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="later"))
    assert [asked.get(timeout=1).error, later.get(timeout=1).error] == ["it died"] * 2
    assert asked.is_done()
    assert later.is_done()
