"""Creates the Beam runner by name, resolves its options, and shortens its error messages.

Beam's `DirectRunner` silently downloads and uses Prism where it can. Here, `DirectRunner` always
means Beam's in-process runner.
"""

from __future__ import annotations

import importlib.util
import os
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
from recordmill.transforms.storage.lakehouse import DELTA, TableAddress
from recordmill.transforms.verification import verifier_process

_WITH_JOB_SERVER = frozenset({"FlinkRunner", "SparkRunner"})
_KNOWN = ("DirectRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")
_HERE = re.compile(
    r"(\w+://)?(localhost|127\.[\d.]+|\[::1\])(:\d+)?/?|\[auto\]|\[local\]|local\b.*"
)

_SHORT = 6

# Raised by Beam's in-process runner if a worker's data stream ends before its exit is noticed.
_HUNG_UP = "Channel closed prematurely"

_AGAIN = "then run the same command again: finished shards are kept."

_MEMORY = (
    "Memory or threads ran out, or a limit on them was reached (see ulimit -v and ulimit -u). "
    "Allow more, or use fewer workers (--direct_num_workers)."
)

# Remedies by the error text of the operating system, or of Beam.
_REMEDIES = {
    "No space left on device": f"Free some space where --output is, {_AGAIN}",
    "Disk quota exceeded": f"Free some space where --output is, or raise the quota, {_AGAIN}",
    "File too large": f"Allow larger files where --output is (see ulimit -f), {_AGAIN}",
    "Read-only file system": f"Make --output writable, {_AGAIN}",
    "Permission denied": f"Let this user read and write there, {_AGAIN}",
    "can't start new thread": _MEMORY,
    "MemoryError": _MEMORY,
    "Cannot allocate memory": _MEMORY,
    "Unable to fetch remote job server jar": (
        "Name the version of your engine, as in --flink_version=1.20, or a job server of yours: "
        "--flink_job_server_jar, --spark_job_server_jar or --job_endpoint; see "
        "docs/how-to/engines.md"
    ),
}

# Beam appends this to the message of an exception that a DoFn raises.
_STEP = re.compile(r" \[while running '[^']*'\]$")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Failure)(?::|$)")

# Seconds: the default of Beam's --job_server_timeout, and ten years.
_BEAMS_TIMEOUT = 300
_NO_TIMEOUT = 10 * 365 * 24 * 3600

_SERVICE = "DataflowRunner"

# Memory of a worker: recordmill and TensorFlow take 2 GB, the engine the rest.
_WORKER_RAM = "4GB"

_REQUIRED = ("project", "region", "temp_location")


def runner_name(options: PipelineOptions) -> str:
    """Returns the name of the runner in the options."""
    return options.view_as(StandardOptions).runner or "DirectRunner"


def is_in_process(options: PipelineOptions) -> bool:
    """Returns whether workers are threads of this process, and share its progress counters."""
    return verifier_process.workers_are_threads(
        runner_name(options),
        options.view_as(DirectOptions).direct_running_mode,
        options.view_as(PortableOptions).environment_type,
    )


def runs_directly(options: PipelineOptions) -> bool:
    """Returns whether Beam's in-process runner runs all steps in this process."""
    return runner_name(options) in verifier_process.IN_PROCESS_RUNNERS and is_in_process(options)


def in_process(options: PipelineOptions) -> PipelineOptions:
    """Returns a copy of the options that selects Beam's in-process runner."""
    own = deepcopy(options)
    own.view_as(StandardOptions).runner = "DirectRunner"
    direct = own.view_as(DirectOptions)
    direct.direct_running_mode, direct.direct_num_workers = "in_memory", 1
    return own


def _make_runner(options: PipelineOptions) -> PipelineRunner:
    if runner_name(options) not in verifier_process.IN_PROCESS_RUNNERS:
        return create_runner(runner_name(options))
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))


def make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline for the runner in the options; UsageError if it is unknown."""
    setup = options.view_as(SetupOptions)
    if setup.save_main_session is None:
        setup.save_main_session = False  # the code is a package, which workers have installed
    try:
        pipeline = beam.Pipeline(runner=_make_runner(options), options=options)
    except ValueError as error:
        raise UsageError(f"--runner={runner_name(options)}: {error}") from error
    # For transforms in other languages, which we have none of; it would stay after SIGKILL.
    os.rmdir(pipeline.local_tempdir)
    return pipeline


def resolve_options(options: PipelineOptions) -> None:
    """Adds the options that a runner needs, in place.

    Engines on this machine use threads of this process as workers. The default timeout of Prism,
    which ends every job after five minutes, is removed. Raises UsageError if the runner is unknown,
    or would fail or hang without a clear message.
    """
    name = runner_name(options)
    portable = options.view_as(PortableOptions)
    _check_name(name)
    if name == "PrismRunner" and portable.job_server_timeout == _BEAMS_TIMEOUT:
        portable.job_server_timeout = _NO_TIMEOUT
    standard = options.view_as(StandardOptions)
    if name == _SERVICE and not standard.resource_hints:
        # For the whole job: a hint of one step would give that step worker processes of its own.
        standard.resource_hints = [f"min_ram={_WORKER_RAM}"]
    if name in _WITH_JOB_SERVER:
        _check_java(options, name)
        _resolve_environment(options, name)


def _check_name(name: str) -> None:
    if name in _KNOWN or "." in name:  # with a dot, it is the path of a user's class
        return
    try:
        create_runner(name)
    except ValueError as error:
        guess = did_you_mean(name, _KNOWN)
        known = ", ".join(_KNOWN)
        raise UsageError(f"--runner={name}: unknown runner{guess}; available: {known}") from error


def _check_java(options: PipelineOptions, name: str) -> None:
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if not options.view_as(PortableOptions).job_endpoint and shutil.which(java) is None:
        raise UsageError(
            f"--runner {name}: {java} is not on the PATH. Install Java 17, or set "
            "--job_server_java_launcher, or the address of a job server in --job_endpoint."
        )


def _resolve_environment(options: PipelineOptions, name: str) -> None:
    portable = options.view_as(PortableOptions)
    image = options.view_as(WorkerOptions).sdk_container_image or portable.environment_config
    if portable.environment_type or image:
        return
    if not _HERE.fullmatch(master := _master(options, name)):
        raise UsageError(
            f"--runner {name}: {master} is not on this machine. Set how its workers run Python "
            "with recordmill: --environment_type=PROCESS|EXTERNAL|DOCKER with "
            "--environment_config; see docs/how-to/engines.md"
        )
    portable.environment_type = "LOOPBACK"


def _master(options: PipelineOptions, name: str) -> str:
    if name == "FlinkRunner":
        return str(options.view_as(FlinkRunnerOptions).flink_master)
    return str(options.view_as(SparkRunnerOptions).spark_master_url)


def check_submission(config: ConvertConfig, options: PipelineOptions) -> None:
    """Rejects options and paths with which a job would fail minutes later, on the service.

    Raises UsageError if an option is missing, or a path that workers need is on this machine.
    """
    runner = runner_name(options)
    if runner != _SERVICE:
        if options.view_as(StandardOptions).no_wait_until_finish:
            raise UsageError(
                f"--no_wait_until_finish: {runner} ends with this process. Remove the flag."
            )
        return
    if not _has_client():
        raise UsageError(f"--runner={_SERVICE}: its client is missing. Install recordmill[gcp].")
    given = options.view_as(GoogleCloudOptions)
    if missing := [f"--{name}" for name in _REQUIRED if not getattr(given, name)]:
        raise UsageError(
            f"--runner={_SERVICE}: expected {' and '.join(missing)}, as in "
            "--project=P --region=R --temp_location=gs://BUCKET/tmp"
        )
    for flag, path in _paths(config):
        if is_local(path):
            raise UsageError(
                f"--{flag} {path}: is on this machine, where workers of {_SERVICE} cannot read it. "
                "Copy it to a bucket: gs://…"
            )


def waits_for_result(options: PipelineOptions) -> bool:
    """Returns whether the process waits for the job to finish.

    It does not wait with Beam's `--no_wait_until_finish`, nor with `--template_location`, which
    Flex Templates set: Beam then only writes the job to a file, and the launcher starts it.
    """
    return not (
        options.view_as(StandardOptions).no_wait_until_finish
        or options.view_as(GoogleCloudOptions).template_location
    )


def job_page(result: PipelineResult, options: PipelineOptions) -> str | None:
    """Returns the URL of a job's web page; None if the job does not run on a service."""
    if runner_name(options) != _SERVICE or not result.has_job:
        return None
    given = options.view_as(GoogleCloudOptions)
    page = f"dataflow/jobs/{given.region}/{result.job_id()}?project={given.project}"
    return f"https://console.cloud.google.com/{page}"


def _has_client() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.dataflow_v1beta3") is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _paths(config: ConvertConfig) -> Iterator[tuple[str, str]]:
    """Yields (flag, path) of each path that workers read or write."""
    yield "output", config.output
    for path in config.inputs:
        address = TableAddress.parse(path)
        if address is None or address.kind == DELTA:  # of Iceberg, the catalog knows the path
            yield "input", address.name if address else path
    for flag in ("labels", "image_root", "base"):
        path = getattr(config, flag)
        if path is not None:
            yield flag, path


def short_message(error: Exception) -> str:
    """Returns an engine's error in a few lines: its first line, its last cause, and a remedy.

    Engines wrap the traceback of a Python worker in their own tracebacks, which are hundreds of
    lines. A bare traceback of a worker is shortened to its last error.

    >>> short_message(RuntimeError("job 7 failed: disk full"))
    'RuntimeError: job 7 failed: disk full'
    """
    text = str(error)
    if _HUNG_UP in text:
        return dead_worker_message("its connection was closed")
    named = f"{type(error).__name__}: {text}"
    remedies = [f"\n  {remedy}" for cause, remedy in _REMEDIES.items() if cause in named]
    return _first_and_last(error) + "".join(dict.fromkeys(remedies))


def without_step(error: RecordmillError) -> RecordmillError:
    """Returns an error without the name of the pipeline step, which Beam appends."""
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
    return "\n  ".join([first, *raised[-1:], "See the engine's log for details."])


def dead_worker_message(how: str) -> str:
    """Returns the message for a worker process that died: its exit code, or the symptom."""
    return (
        f"a worker process died ({how}); 137 or -9 means that it was killed, usually "
        "because memory ran out. Use fewer workers "
        "(--direct_num_workers), or --direct_running_mode=multi_threading."
    )
