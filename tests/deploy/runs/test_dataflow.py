"""Dataflow: the job that the real client submits from the installed wheel, and its run."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from google.protobuf import wrappers_pb2

from deploy.dataflow import metadata
from deploy.dataflow.main import command
from recordmill.pipelines import graph
from tests.deploy.runs.cloud import BUCKET, Cloud, google_cloud
from tests.deploy.runs.environments import run

IMAGE = "region-docker.pkg.dev/local-project/images/recordmill:1.0.0"
DATASET = f"gs://{BUCKET}/out/shapes/1.0.0"
FLAGS = (
    f"--input=gs://{BUCKET}/sample/labels.csv",
    "--name=shapes",
    "--splits=train=0.7,validation=0.3",
    "--num_shards=train=3,validation=2",
)
WORKERS = (
    "--num_workers=3",
    "--max_num_workers=9",
    "--machine_type=n2d-standard-4",
    "--disk_size_gb=50",
    "--experiments=no_use_multiple_sdk_containers",
    f"--sdk_container_image={IMAGE}",
)


@pytest.fixture(scope="module")
def cloud(
    installed: Path, sample: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("cloud")
    with google_cloud(installed / "bin" / "python", folder) as running:
        running.upload(sample)
        yield running


def recordmill(installed: Path, cloud: Cloud, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed program on Dataflow, outside of the checkout."""
    service = (
        "--runner=DataflowRunner",
        "--project=local-project",
        "--region=here-1",
        f"--temp_location=gs://{BUCKET}/staging",
        f"--dataflow_endpoint={cloud.service}",
    )
    return subprocess.run(
        [installed / "bin" / "recordmill", *flags, *service],
        capture_output=True,
        text=True,
        check=False,
        env=cloud.environment,
        cwd=cloud.jobs,
        timeout=300,
    )


@pytest.fixture(scope="module")
def published(installed: Path, cloud: Cloud) -> subprocess.CompletedProcess[str]:
    """A conversion on Dataflow that waits for the job."""
    return recordmill(
        installed,
        cloud,
        *("convert", f"--output=gs://{BUCKET}/out", "--max_rejects=10", "--json"),
        *FLAGS,
        *WORKERS,
    )


def last_job(cloud: Cloud) -> dict[str, Any]:
    newest = max(cloud.jobs.glob("job-*.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(newest.read_text())


def staged_pipeline(cloud: Cloud, job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
    url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    return beam_runner_api_pb2.Pipeline.FromString(cloud.read(url.removeprefix(f"gs://{BUCKET}/")))


def test_the_driver_waits_and_reports_the_outcome_of_the_job(
    published: subprocess.CompletedProcess[str],
) -> None:
    assert published.returncode == 0, published.stderr
    record = json.loads(published.stdout)
    assert (record["state"], record["exit_code"]) == ("published", 0)
    assert (record["rows"], record["records"], record["rejected"]) == (66, 60, 6)
    assert record["runner"] == "DataflowRunner"
    assert "submitted: https://console.cloud.google.com/dataflow/jobs/here-1/job-1" in (
        published.stderr
    )


def test_shards_are_the_same_as_on_this_machine(
    installed: Path,
    cloud: Cloud,
    published: subprocess.CompletedProcess[str],
    sample: Path,
    tmp_path: Path,
) -> None:
    local = subprocess.run(
        [
            *(installed / "bin" / "recordmill", "convert", "--max_rejects=10"),
            *FLAGS[1:],
            *(f"--input={sample / 'labels.csv'}", f"--output={tmp_path}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert local.returncode == 0, local.stderr
    folder = tmp_path / "shapes" / "1.0.0"
    here = {path.name: digest(path.read_bytes()) for path in folder.glob("*.tfrecord-*")}
    names = cloud.names("out/shapes/1.0.0/shapes-")
    there = {name.rpartition("/")[2]: digest(cloud.read(name)) for name in names}
    assert len(there) == 5
    assert there == here


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_job_asks_for_the_workers_that_the_flags_name(
    cloud: Cloud, published: subprocess.CompletedProcess[str]
) -> None:
    job = json.loads((cloud.jobs / "job-1.json").read_text())
    (pool,) = job["environment"]["workerPools"]
    assert job["type"] == 1  # JOB_TYPE_BATCH
    assert pool["numWorkers"] == 3
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 9
    assert pool["machineType"] == "n2d-standard-4"
    assert pool["diskSizeGb"] == 50
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert "use_runner_v2" in job["environment"]["experiments"]
    assert "use_multiple_sdk_containers" not in job["environment"]["experiments"]


def test_no_main_session_and_no_package_is_staged(
    cloud: Cloud, published: subprocess.CompletedProcess[str]
) -> None:
    job = json.loads((cloud.jobs / "job-1.json").read_text())
    options = job["environment"]["sdkPipelineOptions"]["options"]
    staged = {package["name"] for package in job["environment"]["workerPools"][0]["packages"]}
    assert options["save_main_session"] is False
    assert staged == {"submission_environment_dependencies.txt"}


def test_the_job_graph_has_one_shuffle_of_references_and_no_table(
    cloud: Cloud, published: subprocess.CompletedProcess[str]
) -> None:
    job = json.loads((cloud.jobs / "job-1.json").read_text())
    pipeline = staged_pipeline(cloud, job)
    transforms = pipeline.components.transforms
    (root,) = pipeline.root_transform_ids
    steps = {transforms[step].unique_name for step in transforms[root].subtransforms}
    assert steps == (named_steps() | {"WriteRejects"}) - {
        *("ListLabels", "ReadLabels", "JoinLabels"),  # no --labels
        # no --list_unused_images
        *("ListUnusedImages", "WithUnusedImages", "ReadAllTables", "WithRowsOutside"),
        *("DropDuplicates", "DropSimilar"),  # no option that drops rows
        *("FindSample", "AnalyzeSample", "Sample"),  # no --sample
        *("FindClusters", "KeepTogether", "KeepAnalyzedTogether", "KeepAllTogether"),  # by default
        "FindRemovedRecords",  # no `forget`
        "RejectDuplicateKeys",  # no option by which rows with one key may be in several shards
        *("CompareGroups", "IndexShards"),  # no group that could span splits, no --index
    }
    assert {"AnalyzeRows", "ReadTables", "WriteShards", "VerifyShards", "Publish"} <= steps
    leaves = [t for t in transforms.values() if not t.subtransforms]
    shuffles = {
        t.unique_name for t in leaves if t.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn
    }
    shuffle = "WriteShards/GroupByShard/GroupByKey"
    assert {name for name in shuffles if name.startswith("WriteShards")} == {shuffle}
    assert coder_names(pipeline, shuffle) == [
        "beam:coder:kv:v1",
        *("beam:coder:kv:v1", "beam:coder:string_utf8:v1", "beam:coder:varint:v1"),
        "PickleCoder",
    ]
    assert max(len(t.spec.payload) for t in leaves) < 20_000
    assert b"circle-00.jpg" not in pipeline.SerializeToString()


def named_steps() -> set[str]:
    """Returns the labels of the steps in pipelines/graph.py."""
    return set(re.findall(r'"(\w+)"\s*>>', inspect.getsource(graph)))


def coder_names(pipeline: beam_runner_api_pb2.Pipeline, step: str) -> list[str]:
    """Returns the names of the coders of a step's input, outer ones first."""
    components = pipeline.components
    (node,) = [t for t in components.transforms.values() if t.unique_name == step]
    (collection,) = node.inputs.values()

    def walk(id_: str) -> Iterator[str]:
        coder = components.coders[id_]
        if coder.spec.urn == python_urns.PICKLED_CODER:  # a BytesValue of b"<class>$<pickle>"
            payload = wrappers_pb2.BytesValue.FromString(coder.spec.payload).value
            yield payload.partition(b"$")[0].decode()
        else:
            yield coder.spec.urn
        for inner in coder.component_coder_ids:
            yield from walk(inner)

    return list(walk(components.pcollections[collection].coder_id))


def test_the_job_does_not_depend_on_the_length_of_the_table(
    installed: Path, cloud: Cloud, sample: Path, tmp_path: Path
) -> None:
    header, *rows = (sample / "labels.csv").read_text().splitlines()
    long = tmp_path / "sample"
    long.mkdir()
    (long / "long.csv").write_text("\n".join([header, *rows * 1000]) + "\n")
    cloud.upload(long)
    sizes = []
    for table in ("labels.csv", "long.csv"):
        graph = f"gs://{BUCKET}/graphs/{table}.json"
        ended = recordmill(
            *(installed, cloud, "convert", f"--input=gs://{BUCKET}/sample/{table}"),
            *(f"--output=gs://{BUCKET}/graphs", "--name=shapes", f"--template_location={graph}"),
        )
        assert ended.returncode == 0, ended.stderr
        job = json.loads(cloud.read(f"graphs/{table}.json"))
        sizes.append(staged_pipeline(cloud, job).ByteSize())
    assert abs(sizes[1] - sizes[0]) < 2_000


def test_the_driver_exits_with_4_if_rejects_exceed_the_budget(
    installed: Path, cloud: Cloud
) -> None:
    ended = recordmill(
        installed, cloud, "convert", f"--output=gs://{BUCKET}/strict", *FLAGS, *WORKERS
    )
    assert ended.returncode == 4
    assert "6 of 66 rows were rejected" in ended.stderr
    assert "Traceback" not in ended.stderr
    left = cloud.names("strict/shapes/1.0.0/")
    assert "strict/shapes/1.0.0/_SUCCESS" not in left
    assert "strict/shapes/1.0.0/dataset_info.json" not in left


def test_a_job_that_is_not_awaited_finishes(installed: Path, cloud: Cloud) -> None:
    jobs = len(list(cloud.jobs.glob("job-*.json")))
    ended = recordmill(
        *(installed, cloud, "convert", f"--output=gs://{BUCKET}/left", "--max_rejects=10"),
        *(*FLAGS, "--json", "--no_wait_until_finish"),
    )
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    assert record["state"] == "submitted"
    assert f"gs://{BUCKET}/left/shapes/1.0.0/run.json" in record["message"]
    assert len(list(cloud.jobs.glob("job-*.json"))) == jobs + 1


def test_the_entry_point_of_the_template_writes_the_job_without_starting_it(
    installed: Path, cloud: Cloud
) -> None:
    jobs = len(list(cloud.jobs.glob("job-*.json")))
    launched = [f"--output=gs://{BUCKET}/flex", "--max_rejects=10", *FLAGS, "--job_name=flex-1"]
    launched.append(f"--template_location=gs://{BUCKET}/flex/job.json")
    ended = recordmill(installed, cloud, *command(launched, {"RECORDMILL_IMAGE": IMAGE}))
    assert ended.returncode == 0, ended.stderr
    job = json.loads(cloud.read("flex/job.json"))
    assert job["name"] == "flex-1"
    assert job["environment"]["workerPools"][0]["workerHarnessContainerImage"] == IMAGE
    assert len(list(cloud.jobs.glob("job-*.json"))) == jobs


def test_the_metadata_of_the_template_is_what_the_service_publishes(installed: Path) -> None:
    program = (
        "import sys; from google.cloud import dataflow_v1beta3 as dataflow;"
        "read = dataflow.TemplateMetadata.from_json(sys.stdin.read(), ignore_unknown_fields=False);"
        "print(len(read.parameters), {p.param_type.name for p in read.parameters} - {'TEXT'})"
    )
    text = metadata.PATH.read_text(encoding="utf-8")
    printed = run(installed / "bin" / "python", "-c", program, input=text)
    count, types = printed.split(maxsplit=1)
    assert int(count) == len(json.loads(text)["parameters"])
    assert ast.literal_eval(types) == {"BOOLEAN", "ENUM"}
