"""Chooses the Beam runner by name, and resolves its options.

Beam's own DirectRunner downloads and uses Prism where it can, and says nothing: here the name means
what it says, Beam's in-process runner.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from copy import deepcopy

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    SparkRunnerOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import PipelineRunner, create_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import PipelineResult

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError, did_you_mean
from recordmill.transforms.storage.files import is_local
from recordmill.transforms.verification.verifier_process import (
    IN_PROCESS_RUNNERS,
    workers_are_threads,
)

_WITH_JOB_SERVER = frozenset({"FlinkRunner", "SparkRunner"})
_KNOWN = ("DirectRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")
_HERE = re.compile(
    r"(\w+://)?(localhost|127\.[\d.]+|\[::1\])(:\d+)?/?|\[auto\]|\[local\]|local\b.*"
)

_SHORT = 6
_HUNG_UP = "Channel closed prematurely"
"""Beam's in-process runner, when a worker's data breaks off before anyone sees that it died."""

_AGAIN = "then run the same command again: finished shards are kept"
_REMEDIES = {
    "No space left on device": f"free some space where --output is, {_AGAIN}",
    "Disk quota exceeded": f"free some space where --output is, or ask for more, {_AGAIN}",
    "File too large": f"allow larger files where --output is (see ulimit -f), {_AGAIN}",
    "Read-only file system": f"make --output writable, {_AGAIN}",
    "Permission denied": f"let this user read and write there, {_AGAIN}",
}
"""What helps, by what the system said."""

_STEP = re.compile(r" \[while running '[^']*'\]$")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Failure)(?::|$)")

_BEAMS_TIMEOUT = 300
_NO_TIMEOUT = 10 * 365 * 24 * 3600

_SERVICE = "DataflowRunner"
_REQUIRED = ("project", "region", "temp_location")


def runner_name(options: PipelineOptions) -> str:
    """Returns the runner that the options name."""
    return options.view_as(StandardOptions).runner or "DirectRunner"


def is_in_process(options: PipelineOptions) -> bool:
    """Returns whether workers are threads of this process: then it can be watched."""
    return workers_are_threads(
        runner_name(options),
        options.view_as(DirectOptions).direct_running_mode,
        options.view_as(PortableOptions).environment_type,
    )


def runs_directly(options: PipelineOptions) -> bool:
    """Returns whether Beam's own runner does everything in this process."""
    return runner_name(options) in IN_PROCESS_RUNNERS and is_in_process(options)


def in_process(options: PipelineOptions) -> PipelineOptions:
    """Returns options for Beam's own runner in this process, the same otherwise."""
    own = deepcopy(options)
    own.view_as(StandardOptions).runner = "DirectRunner"
    direct = own.view_as(DirectOptions)
    direct.direct_running_mode, direct.direct_num_workers = "in_memory", 1
    return own


def make_runner(options: PipelineOptions) -> PipelineRunner:
    """Returns the runner itself."""
    if runner_name(options) not in IN_PROCESS_RUNNERS:
        return create_runner(runner_name(options))
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))


def make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline for the runner that the options name.

    Raises:
        UsageError: if the runner is none, or rejects the options.
    """
    setup = options.view_as(SetupOptions)
    if setup.save_main_session is None:
        setup.save_main_session = False  # the code is a package, which workers have installed
    try:
        return beam.Pipeline(runner=make_runner(options), options=options)
    except ValueError as error:
        raise UsageError(f"--runner={runner_name(options)}: {error}") from error


def resolve_options(options: PipelineOptions) -> None:
    """Fills in what a runner needs and was not given.

    Workers of an engine on this machine are threads of this process; Prism, which ends every job
    after five minutes otherwise, may take as long as it takes.

    Raises:
        UsageError: for what the runner would fail with, or wait for, without a clear word.
    """
    name, portable = runner_name(options), options.view_as(PortableOptions)
    _check_name(name)
    if name == "PrismRunner" and portable.job_server_timeout == _BEAMS_TIMEOUT:
        portable.job_server_timeout = _NO_TIMEOUT
    if name in _WITH_JOB_SERVER:
        _check_java(options, name)
        _resolve_environment(options, name)


def _check_name(name: str) -> None:
    if name in _KNOWN or "." in name:  # or a class of the user's own
        return
    try:
        create_runner(name)
    except ValueError as error:
        guess, known = did_you_mean(name, _KNOWN), ", ".join(_KNOWN)
        raise UsageError(f"--runner={name}: unknown runner{guess}; available: {known}") from error


def _check_java(options: PipelineOptions, name: str) -> None:
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if not options.view_as(PortableOptions).job_endpoint and shutil.which(java) is None:
        raise UsageError(
            f"--runner {name}: needs {java}, which is not on the PATH; install Java 17, or give "
            "--job_server_java_launcher, or the address of a job server, --job_endpoint"
        )


def _resolve_environment(options: PipelineOptions, name: str) -> None:
    portable = options.view_as(PortableOptions)
    image = options.view_as(WorkerOptions).sdk_container_image or portable.environment_config
    if portable.environment_type or image:
        return
    if not _HERE.fullmatch(master := _master(options, name)):
        raise UsageError(
            f"--runner {name}: {master} is not on this machine; say how its workers run Python "
            "with recordmill: --environment_type=PROCESS|EXTERNAL|DOCKER with "
            "--environment_config; see docs/how-to/engines.md"
        )
    portable.environment_type = "LOOPBACK"


def _master(options: PipelineOptions, name: str) -> str:
    if name == "FlinkRunner":
        return str(options.view_as(FlinkRunnerOptions).flink_master)
    return str(options.view_as(SparkRunnerOptions).spark_master_url)


def check_submission(config: ConvertConfig, options: PipelineOptions) -> None:
    """Rejects flags and paths with which a job would fail on the service, minutes later.

    Args:
        config: the settings of the conversion.
        options: Beam's options.

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


def waits_for_result(options: PipelineOptions) -> bool:
    """Returns whether the end of a job is waited for.

    It is not with Beam's `--no_wait_until_finish`, nor with `--template_location`, which Flex
    Templates set: Beam then writes the job down, and the template's launcher starts it.
    """
    return not (
        options.view_as(StandardOptions).no_wait_until_finish
        or options.view_as(GoogleCloudOptions).template_location
    )


def job_page(result: PipelineResult, options: PipelineOptions) -> str | None:
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


def short_message(error: Exception) -> str:
    """Returns the first line of what an engine raised, the last error within it, and what helps.

    Of a worker's bare traceback the last error alone.

    Engines wrap the traceback of a Python worker into those of their own, some hundred lines.

    >>> short_message(RuntimeError("job 7 failed: disk full"))
    'RuntimeError: job 7 failed: disk full'
    """
    text = str(error)
    if _HUNG_UP in text:
        return dead_worker_message("it hung up")
    remedies = [f"\n  {remedy}" for said, remedy in _REMEDIES.items() if said in text]
    return _first_and_last(error) + "".join(remedies)


def without_step(error: RecordmillError) -> RecordmillError:
    """Returns an error of this program without the step of its pipeline, which Beam adds."""
    error.args = (_STEP.sub("", str(error)), *error.args[1:])
    return error


def _first_and_last(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and lines[0].startswith("Traceback "):
        return raised[-1]
    first = f"{type(error).__name__}: {lines[0] if lines else ''}"
    if len(lines) <= _SHORT:
        return "\n  ".join([first, *lines[1:]])
    return "\n  ".join([first, *raised[-1:], "the engine's own log has the rest"])


def dead_worker_message(how: str) -> str:
    """Returns what a person can do about a worker process that died, and how it did."""
    return (
        f"a worker process died ({how}); 137 or -9 means that it was killed, usually "
        "because memory ran out: use fewer workers "
        "(--direct_num_workers), or --direct_running_mode=multi_threading"
    )
