"""Worker processes: the options and endpoints that they are given."""

from __future__ import annotations

import argparse
import json

from apache_beam.portability.api import beam_provision_api_pb2, endpoints_pb2
from google.protobuf import json_format, struct_pb2, text_format

from recordmill.pipelines.worker import _worker_environment

FLAGS = argparse.Namespace(
    id="7-1", logging_endpoint="here:1", control_endpoint="here:2", semi_persist_dir=""
)


def endpoint(text: str) -> str:
    found: str = text_format.Parse(text, endpoints_pb2.ApiServiceDescriptor()).url
    return found


def test_a_worker_gets_the_options_of_the_job() -> None:
    options = {"beam:option:s3_access_key_id:v1": "key", "beam:option:parallelism:v1": "2"}
    info = beam_provision_api_pb2.ProvisionInfo(
        pipeline_options=json_format.ParseDict(options, struct_pb2.Struct()),
        runner_capabilities=["one", "two"],
    )
    variables = _worker_environment(FLAGS, info)
    assert json.loads(variables["PIPELINE_OPTIONS"]) == options
    assert (variables["WORKER_ID"], variables["RUNNER_CAPABILITIES"]) == ("7-1", "one two")
    assert endpoint(variables["LOGGING_API_SERVICE_DESCRIPTOR"]) == "here:1"
    assert endpoint(variables["CONTROL_API_SERVICE_DESCRIPTOR"]) == "here:2"


def test_the_engine_can_override_endpoints() -> None:
    info = beam_provision_api_pb2.ProvisionInfo()
    info.control_endpoint.url = "there:9"
    variables = _worker_environment(FLAGS, info)
    assert endpoint(variables["CONTROL_API_SERVICE_DESCRIPTOR"]) == "there:9"
    assert endpoint(variables["LOGGING_API_SERVICE_DESCRIPTOR"]) == "here:1"
