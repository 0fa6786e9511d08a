"""Chooses the Beam runner by name.

Beam's own DirectRunner downloads and uses Prism where it can, and says nothing: here the name means
what it says, Beam's in-process runner.
"""

from __future__ import annotations

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import PipelineRunner, create_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

_IN_PROCESS = frozenset({"DirectRunner", "FnApiRunner"})


def runner_name(options: PipelineOptions) -> str:
    """Returns the runner that the options name."""
    return options.view_as(StandardOptions).runner or "DirectRunner"


def is_in_process(options: PipelineOptions) -> bool:
    """Returns whether workers share this process, so that their progress can be watched."""
    return runner_name(options) in _IN_PROCESS


def make_runner(options: PipelineOptions) -> PipelineRunner:
    """Returns the runner itself."""
    if not is_in_process(options):
        return create_runner(runner_name(options))
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))
