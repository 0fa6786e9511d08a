"""What is rejected before a job is submitted to a service, and whether its result is awaited."""

from __future__ import annotations

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from recordmill.pipelines.engines import runners
from recordmill.pipelines.engines.runners import make_pipeline
from recordmill.pipelines.options import config_of
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError

PROJECT = ("--project=p-1", "--region=r-1", "--temp_location=gs://b/tmp")


def config(**changed: object) -> ConvertConfig:
    flags = {"input": ["gs://b/labels.csv"], "output": "gs://b/out", "name": "birds"}
    return config_of({**flags, **changed})


def dataflow(*flags: str) -> PipelineOptions:
    return PipelineOptions(["--runner=DataflowRunner", *flags])


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that Dataflow's client is installed; tests/deploy/runs installs it."""
    monkeypatch.setattr(runners, "_has_client", lambda: True)


def rejection(config: ConvertConfig, options: PipelineOptions) -> str:
    with pytest.raises(UsageError) as raised:
        runners.check_submission(config, options)
    return str(raised.value)


def test_a_complete_command_is_accepted() -> None:
    runners.check_submission(config(image_root="gs://b/photos"), dataflow(*PROJECT))


def test_missing_flags_are_named_with_an_example() -> None:
    assert rejection(config(), dataflow("--region=r-1")) == (
        "--runner=DataflowRunner: expected --project and --temp_location, as in "
        "--project=P --region=R --temp_location=gs://BUCKET/tmp"
    )


@pytest.mark.parametrize(
    ("changed", "flag"),
    [
        ({"input": ["gs://b/a.csv", "b.csv"]}, "--input b.csv"),
        ({"output": "/data/out"}, "--output /data/out"),
        ({"image_root": "photos"}, "--image_root photos"),
        ({"base": "out/birds/1.0.0"}, "--base out/birds/1.0.0"),
        ({"labels": "l.csv", "join_on": "id"}, "--labels l.csv"),
    ],
)
def test_paths_of_this_machine_are_rejected(changed: dict[str, object], flag: str) -> None:
    message = rejection(config(**changed), dataflow(*PROJECT))
    assert message.startswith(f"{flag}: is on this machine, where workers of DataflowRunner")


def test_other_runners_accept_local_paths_and_are_always_awaited() -> None:
    local = config(input=["labels.csv"], output="out")
    runners.check_submission(local, PipelineOptions(["--runner=FlinkRunner"]))
    left = PipelineOptions(["--runner=FlinkRunner", "--no_wait_until_finish"])
    assert rejection(local, left).startswith("--no_wait_until_finish: FlinkRunner ends with this")


def test_a_missing_client_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "_has_client", lambda: False)
    assert "Install recordmill[gcp]" in rejection(config(), dataflow(*PROJECT))


@pytest.mark.parametrize(
    ("flags", "awaited"),
    [
        ((), True),
        (("--no_wait_until_finish",), False),
        (("--template_location=gs://b/job.json",), False),
    ],
)
def test_which_jobs_are_awaited(flags: tuple[str, ...], awaited: bool) -> None:
    assert runners.waits_for_result(dataflow(*PROJECT, *flags)) is awaited


def test_an_unknown_runner_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--runner=NoRunner"):
        make_pipeline(PipelineOptions(["--runner=NoRunner"]))


@pytest.mark.parametrize(("flag", "saved"), [([], False), (["--save_main_session"], True)])
def test_the_main_session_is_saved_only_if_asked(flag: list[str], saved: bool) -> None:
    pipeline = make_pipeline(PipelineOptions(["--runner=DirectRunner", *flag]))
    assert pipeline.options.view_as(SetupOptions).save_main_session is saved
