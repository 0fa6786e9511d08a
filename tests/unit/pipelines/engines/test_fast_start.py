from __future__ import annotations

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.transforms import core
from apache_beam.typehints import decorators

from recordmill.pipelines.engines.fast_start import fast_start


def beams_own() -> list[object]:
    return [
        cloudpickle_pickler.bz2,
        core._check_fn_use_yield_and_return,
        vars(decorators.IOTypeHints)["_make_origin"],
    ]


def test_beam_is_as_it_was_afterwards() -> None:
    before = beams_own()
    with fast_start():
        during = beams_own()
    assert all(one is not other for one, other in zip(before, during, strict=True))
    assert all(one is other for one, other in zip(before, beams_own(), strict=True))


def test_what_was_pickled_before_is_read_too() -> None:
    compressed = pickler.dumps({"a": 1})
    with fast_start():
        assert pickler.loads(compressed) == pickler.loads(pickler.dumps({"a": 1})) == {"a": 1}


def test_steps_are_neither_compressed_nor_searched_nor_traced(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it costs time")

    monkeypatch.setattr(core, "_check_fn_use_yield_and_return", fail)
    monkeypatch.setattr(cloudpickle_pickler.bz2, "compress", fail)
    monkeypatch.setattr("traceback.format_stack", fail)
    with fast_start():
        step = beam.Map(lambda x: x).with_output_types(int)
        pickler.dumps(step)
