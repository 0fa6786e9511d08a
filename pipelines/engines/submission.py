"""Jobs that run on a service, away from this machine: what must hold, and whether to wait.

Dataflow goes on without the process that submitted a job; all other engines end with it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult

from recordmill.pipelines.engines.runners import runner_name
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.files import is_local

_SERVICE = "DataflowRunner"
_REQUIRED = ("project", "region", "temp_location")


def check_submission(config: ConvertConfig, options: PipelineOptions) -> None:
    """Rejects what could only fail on the service, minutes later and with a worse message.

    Raises:
        UsageError: if a flag is missing, or a path that workers need is on this machine.
    """
    runner = runner_name(options)
    if runner != _SERVICE:
        if options.view_as(StandardOptions).no_wait_until_finish:
            raise UsageError(
                f"--no_wait_until_finish: {runner} ends with this process; leave the flag out"
            )
        return
    if not _has_client():
        raise UsageError(f"--runner={_SERVICE}: its client is missing; install recordmill[gcp]")
    given = options.view_as(GoogleCloudOptions)
    if missing := [f"--{name}" for name in _REQUIRED if not getattr(given, name)]:
        raise UsageError(
            f"--runner={_SERVICE} needs {' and '.join(missing)}: "
            "--project=P --region=R --temp_location=gs://BUCKET/tmp"
        )
    for flag, path in _paths(config):
        if is_local(path):
            raise UsageError(
                f"--{flag} {path}: is on this machine, where {_SERVICE}'s workers cannot see it; "
                "put it into a bucket: gs://…"
            )


def is_awaited(options: PipelineOptions) -> bool:
    """Returns whether the end of a job is waited for.

    It is not with Beam's `--no_wait_until_finish`, nor with `--template_location`, which Flex
    Templates set: Beam then writes the job down, and the template's launcher starts it.
    """
    return not (
        options.view_as(StandardOptions).no_wait_until_finish
        or options.view_as(GoogleCloudOptions).template_location
    )


def address_of(result: PipelineResult, options: PipelineOptions) -> str | None:
    """Returns the page on which a person can watch a job; None if it does not run on a service."""
    if runner_name(options) != _SERVICE or not result.has_job:
        return None
    given = options.view_as(GoogleCloudOptions)
    page = f"dataflow/jobs/{given.region}/{result.job_id()}?project={given.project}"
    return f"https://console.cloud.google.com/{page}"


def _has_client() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.dataflow_v1beta3") is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


def _paths(config: ConvertConfig) -> Iterator[tuple[str, str]]:
    """Yields the paths that workers read or write, each with its flag."""
    yield "output", config.output
    for path in config.inputs:
        yield "input", path
    for flag in ("labels", "image_root", "base"):
        path = getattr(config, flag)
        if path is not None:
            yield flag, path
