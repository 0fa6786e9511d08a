"""The manifests for Flink on Kubernetes agree with each other, with Beam, and with the program."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PortableOptions
from apache_beam.utils.subprocess_server import JavaJarServer

from recordmill.pipelines.options import beam_options, config_of
from recordmill.pipelines.parser import Parser, add_convert_options
from recordmill.schemas.errors import RecordmillError

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
FLINK, CONVERT = (
    yaml.safe_load((FOLDER / name).read_text("utf-8")) for name in ("flink.yaml", "convert.yaml")
)
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
(WORKERS,) = FLINK["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
(SUBMITTER,) = CONVERT["spec"]["template"]["spec"]["containers"]


def parsed():
    """Returns the settings and the Beam options of the job's command."""
    program, command, *arguments = SUBMITTER["command"]
    assert (program, command) == ("recordmill", "convert")
    parser = Parser(allow_abbrev=False)
    add_convert_options(parser)
    parser.add_argument("--json", action="store_true")
    flags, rest = parser.parse_known_args(arguments)
    values = vars(flags)
    del values["json"]
    return config_of(values), beam_options(rest)


def test_the_command_of_the_job_is_valid():
    config, options = parsed()
    assert config.directory == "s3://bucket/datasets/photos/2026.11.20"
    assert config.if_exists == "skip"
    assert options.view_as(FlinkRunnerOptions).flink_submit_uber_jar


def test_flink_reaches_the_workers_beside_it():
    _, options = parsed()
    (port,) = WORKERS["ports"]
    portable = options.view_as(PortableOptions)
    assert portable.environment_type == "EXTERNAL"
    assert portable.environment_config == f"localhost:{port['containerPort']}"
    assert WORKERS["readinessProbe"]["tcpSocket"]["port"] == port["containerPort"]
    assert WORKERS["args"] == ["--worker_pool"]


def test_the_job_reaches_the_cluster():
    _, options = parsed()
    assert (
        options.view_as(FlinkRunnerOptions).flink_master == f"{FLINK['metadata']['name']}-rest:8081"
    )
    assert WORKERS["image"] == SUBMITTER["image"]


def test_all_files_name_the_same_versions_of_flink_and_beam():
    _, options = parsed()
    version = options.view_as(FlinkRunnerOptions).flink_version
    assert version in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    assert version == "1.20"  # on which the tests of tests/engines run
    assert FLINK["spec"]["flinkVersion"] == f"v{version.replace('.', '_')}"
    assert FLINK["spec"]["image"].startswith(f"flink:{version}-")
    expected = JavaJarServer.path_to_beam_jar(f"runners:flink:{version}:job-server:shadowJar")
    artifact, beam = re.search(r"([a-z0-9.-]+-job-server)-([\d.]+)\.jar$", expected).groups()
    assert f"-Dartifact=org.apache.beam:{artifact}:${{BEAM_VERSION}}" in DOCKERFILE
    assert f"ARG BEAM_VERSION={beam}\n" in DOCKERFILE
    jar = options.view_as(FlinkRunnerOptions).flink_job_server_jar
    assert f"COPY --from=jars /jars/{artifact}.jar {jar}\n" in DOCKERFILE


def test_only_unexpected_errors_are_retried():
    codes = sorted({kind.exit_code for kind in RecordmillError.__subclasses__()} - {1})
    rules = CONVERT["spec"]["podFailurePolicy"]["rules"]
    (rule,) = [rule for rule in rules if rule["action"] == "FailJob"]
    assert rule["onExitCodes"]["values"] == codes == [2, 3, 4, 5]
    assert rule["onExitCodes"]["containerName"] == SUBMITTER["name"]
    dag = (ROOT / "deploy" / "airflow" / "recordmill_dag.py").read_text(encoding="utf-8")
    listed = re.search(r"^NO_RETRY = \{(.*?)^\}", dag, re.DOTALL | re.MULTILINE)[1]
    assert [int(code) for code in re.findall(r"^    (\d):", listed, re.MULTILINE)] == codes
