"""Beam metrics of a conversion, as an engine's page shows them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineResult

from recordmill.pipelines.convert import open_inputs, prepare
from recordmill.pipelines.graph import build
from recordmill.pipelines.options import config_of
from recordmill.transforms.shards import writer_processes
from recordmill.transforms.workers.progress import NAMESPACE, Measurements, counter
from tests.beam.direct import direct_pipeline, records
from tests.images import jpeg


def counters(result: PipelineResult) -> dict[str, int]:
    """Returns the sums of all of our counters over the steps of a pipeline."""
    total = Counter[str]()
    for found in result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]:
        total[found.key.metric.name] += found.committed
    return dict(total)


def distributions(result: PipelineResult) -> dict[str, tuple[int, int, int, int]]:
    """Returns (count, sum, min, max) of our distributions, each of which is of one step."""
    query = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))
    return {
        found.key.metric.name: (of.count, of.sum, of.min, of.max)
        for found in query["distributions"]
        for of in [found.committed]
    }


@pytest.mark.parametrize("in_processes", [False, True])
def test_the_metrics_of_a_conversion_are_exact(
    in_processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_processes:
        monkeypatch.setattr(writer_processes, "MANY_IMAGES", 10)
        ready = property(lambda self: self._are_ready.wait())
        monkeypatch.setattr(writer_processes.WriterProcesses, "are_ready", ready)
    sizes = []
    lines = ["image,label"]
    for number in range(20):
        data = jpeg(seed=number)
        data = data[:-400] if number < 3 else data  # truncated
        (tmp_path / f"{number}.jpg").write_bytes(data)
        sizes.append(len(data))
        lines.append(f"{number}.jpg,cat")
    lines += ["gone.jpg,cat", "x.jpg,", "5.jpg,cat", "too,many,fields"]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(lines) + "\n")
    settings = {"name": "birds", "report": False, "num_shards": 2, "max_rejects": "100%"}
    config = config_of({"input": [str(table)], "output": str(tmp_path / "out"), **settings})
    job = prepare(config, PipelineOptions([]), *open_inputs(config))
    assert job is not None
    p = direct_pipeline()
    build(p, job)
    with writer_processes.writer_processes_allowed(job.scratch):
        result = p.run()
    job.lock.release()

    assert counters(result) == {
        "rows_read": 24,  # the reject of the last line included
        "rows_assigned": 22,  # the one without a label has none
        "rows_written": 17,
        "rows_verified": 17,
        "rejected_truncated": 3,
        "rejected_missing_file": 1,
        "rejected_missing_value": 1,
        "rejected_duplicate_key": 1,
        "rejected_malformed_row": 1,
    }
    found = distributions(result)
    written = [
        sum(map(len, records(shard))) for shard in Path(config.directory).glob("*.tfrecord*")
    ]
    assert found["shard_bytes"] == (2, sum(written), min(written), max(written))
    assert found["read_bytes"] == (21, sum(sizes), 0, max(sizes))  # nothing of what is gone
    for name, number in (("read_us", 21), ("build_us", 21), ("shard_ms", 2)):
        assert found[name][0] == number
        assert 0 <= found[name][2] <= found[name][3]


def _measured_by_threads(number: int) -> list[int]:
    measured = Measurements()

    def work(value: int) -> int:
        measured.add("value", value)
        counter("lost").inc()  # no thread of Beam's
        return value

    with ThreadPoolExecutor(4) as executor:
        return list(measured.reported(executor.map(work, range(number))))


def test_what_threads_measure_is_reported_for_the_step_that_they_work_for() -> None:
    p = direct_pipeline()
    _ = p | beam.Create([100]) | "Step" >> beam.FlatMap(_measured_by_threads)
    result = p.run()
    assert distributions(result) == {"value": (100, 4950, 0, 99)}
    assert counters(result) == {}
    [metric] = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["distributions"]
    assert metric.key.step == "Step"


def test_steps_display_the_settings_that_matter(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,label,part\n1.jpg,cat,test\n")
    options = {"split_column": "part", "records_per_shard": 9, "verify": "decode", "seed": 3}
    options["deduplicate"] = "content"
    settings = {"input": [str(table)], "output": str(tmp_path / "out"), "name": "birds"}
    config = config_of({**settings, **options})
    job = prepare(config, PipelineOptions([]), *open_inputs(config))
    assert job is not None
    p = direct_pipeline()
    build(p, job)
    job.lock.release()
    shown = {
        step.unique_name: {
            label.key: label.string_value
            for data in step.display_data
            for label in [beam_runner_api_pb2.LabelledPayload.FromString(data.payload)]
        }
        for step in p.to_runner_api().components.transforms.values()
    }
    assert shown["AnalyzeRows"] == {
        "seed": "3",
        "split_method": "hash",
        "num_shards": "auto",
        "shard_size": "134217728",
        "records_per_shard": "9",
    }
    assert shown["RejectDuplicateKeys"] == {"split_column": "part", "deduplicate": "content"}
    assert shown["DropDuplicates"] == {"deduplicate": "content"}
    assert shown["WriteShards"] == {
        "name": "birds",
        "version": "1.0.0",
        "compression": "none",
        "decode": "full",
        "verify": "decode",
    }
    assert shown["VerifyShards"] == {"verify": "decode"}
