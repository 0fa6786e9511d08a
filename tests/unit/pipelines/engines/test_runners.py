"""Selection of the runner, and the options that are added to those of the user."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
    S3Options,
    StandardOptions,
)
from apache_beam.portability.common_urns import resource_hints
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from recordmill.pipelines.engines.runners import (
    _make_runner,
    in_process,
    is_in_process,
    make_pipeline,
    runs_directly,
)
from recordmill.pipelines.options import beam_options
from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.stores.beam import WebOptions


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts an executable named java on the PATH."""
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def environment(*flags: str) -> str | None:
    found: str | None = beam_options(flags).view_as(PortableOptions).environment_type
    return found


@pytest.mark.parametrize("flags", [(), ("--runner=DirectRunner",), ("--runner=FnApiRunner",)])
def test_the_direct_runner_is_beams_in_process_one(flags: tuple[str, ...]) -> None:
    options = beam_options(flags)
    assert type(_make_runner(options)) is FnApiRunner
    assert is_in_process(options)


def test_worker_processes_are_not_in_process() -> None:
    options = beam_options(["--direct_running_mode=multi_processing", "--direct_num_workers=2"])
    assert not is_in_process(options)


def test_a_dry_run_stays_in_this_process_and_keeps_store_options() -> None:
    store = ["--allow_private_hosts", "--s3_access_key_id=a"]
    for runner in ("--runner=PrismRunner", "--direct_running_mode=multi_processing"):
        options = beam_options([runner, "--direct_num_workers=3", *store])
        before = options.get_all_options()
        own = in_process(options)
        assert runs_directly(own)
        assert own.view_as(WebOptions).allow_private_hosts
        assert own.view_as(S3Options).s3_access_key_id == "a"
        assert options.get_all_options() == before


@pytest.mark.parametrize(
    "flags",
    [
        ("--runner=FlinkRunner",),
        ("--runner=FlinkRunner", "--flink_master=[local]"),
        ("--runner=FlinkRunner", "--flink_master=localhost:8081"),
        ("--runner=FlinkRunner", "--flink_master=http://127.0.0.1:8081"),
        ("--runner=SparkRunner",),
        ("--runner=SparkRunner", "--spark_master_url=local[2]"),
        ("--runner=SparkRunner", "--spark_master_url=spark://127.0.0.1:7077"),
    ],
)
def test_workers_of_a_local_engine_are_in_this_process(flags: tuple[str, ...]) -> None:
    assert environment(*flags) == "LOOPBACK"
    assert is_in_process(beam_options(flags))


@pytest.mark.parametrize(
    "flags",
    [
        ("--runner=FlinkRunner", "--flink_master=flink.example:8081"),
        ("--runner=FlinkRunner", "--flink_master=https://127.0.0.1.example:8081"),
        ("--runner=SparkRunner", "--spark_master_url=spark://spark.example:7077"),
        ("--runner=SparkRunner", "--spark_master_url=yarn"),
    ],
)
def test_a_remote_engine_needs_an_environment_type(flags: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--environment_type=PROCESS"):
        beam_options(flags)
    process = ("--environment_type=PROCESS", '--environment_config={"command": "boot"}')
    assert environment(*flags, *process) == "PROCESS"
    assert environment(*flags, "--sdk_container_image=mill") is None  # a container is the default


@pytest.mark.parametrize("runner", ["FlinkRunner", "SparkRunner"])
def test_missing_java_is_a_usage_error(runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="java is not on the PATH"):
        beam_options([f"--runner={runner}"])
    beam_options([f"--runner={runner}", "--job_endpoint=localhost:8099"])


@pytest.mark.parametrize("given", [None, 60])
def test_a_prism_job_can_take_longer_than_five_minutes(given: int | None) -> None:
    flags = ["--runner=PrismRunner"] + ([f"--job_server_timeout={given}"] if given else [])
    timeout = beam_options(flags).view_as(PortableOptions).job_server_timeout
    assert timeout == given if given else timeout > 30 * 24 * 3600


def test_beam_silently_drops_an_unknown_flag() -> None:
    assert isinstance(PipelineOptions(["--no_such_flag=1"]), PipelineOptions)
    with pytest.raises(UsageError, match="--no_such_flag"):
        beam_options(["--no_such_flag=1"])


@pytest.mark.parametrize("given", [(), ("min_ram=9GB",)])
def test_all_steps_of_a_dataflow_job_request_the_same_memory(given: tuple[str, ...]) -> None:
    flags = ["--runner=DataflowRunner", *(f"--resource_hint={hint}" for hint in given)]
    pipeline = beam.Pipeline(FnApiRunner(), beam_options(flags))
    _ = pipeline | beam.Create([1]) | beam.Reshuffle() | beam.Map(str)
    components = pipeline.to_runner_api().components
    used = {step.environment_id for step in components.transforms.values()} - {""}
    hints = [dict(components.environments[name].resource_hints) for name in used]
    memory = b"9000000000" if given else b"4000000000"
    assert hints == [{resource_hints.MIN_RAM_BYTES.urn: memory}]
    assert beam_options([]).view_as(StandardOptions).resource_hints == []


def test_a_pipeline_has_no_temporary_folder_that_a_killed_run_would_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    pipeline = make_pipeline(PipelineOptions([]))
    assert list(folder.iterdir()) == []
    pipeline.run().wait_until_finish()
    assert list(folder.iterdir()) == []
