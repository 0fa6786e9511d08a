"""The documents of events, complete, from given records and manifests."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from typing import Any

import pytest
from jsonschema import ValidationError
from openlineage.client.serde import Serde

from recordmill.pipelines.lineage import RunSource, _event_of
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import Base, BaseEntry, Manifest, ShardEntry, SplitEntry
from recordmill.schemas.row_counts import RowCounts
from recordmill.schemas.statistics import DuplicateStats
from tests.openlineage_schema import validate

ID = "5b04584b94bc4dae852d152c7e382873"
RUN = "5b04584b-94bc-4dae-852d-152c7e382873"
BY = "pkg:pypi/recordmill@0.2.0"
SPEC = "https://openlineage.io/spec/facets"
SCHEMA = Schema.model_validate(
    {
        "name": "boxes",
        "features": {
            "image": {"kind": "bytes", "from": "image:bytes"},
            "label": {"kind": "int64", "from": "column:label", "classes": True},
            "size": {"kind": "float", "from": "column:size", "shape": [2]},
            "pairs": {"kind": "int64", "from": "column:pairs", "shape": [None, 4]},
            "tags": {"kind": "bytes", "from": "column:tags", "shape": []},
        },
    }
)


def facet(name: str, version: str, /, **values: Any) -> dict[str, Any]:
    return {"_producer": BY, "_schemaURL": f"{SPEC}/{version}/{name}.json#/$defs/{name}", **values}


def source(environment: dict[str, str] | None = None, **more: Any) -> RunSource:
    options = {"inputs": ("s3://in/a.csv",), "output": "/out", "name": "birds", **more}
    base = Base("/out/birds/0.9.0", "", Manifest.model_construct(version="0.9.0"), {})
    return RunSource(
        "convert",
        ConvertConfig.model_validate(options),
        base if "base" in options else None,
        [100, 50],
        environment or {},
    )


def record(state: str, exit_code: int = 0, message: str = "", **more: Any) -> RunRecord:
    return RunRecord(
        run_id=ID,
        state=state,
        exit_code=exit_code,
        message=message,
        runner="FlinkRunner",
        started=datetime(2026, 11, 20, 2, 0, tzinfo=timezone.utc),
        finished=datetime(2026, 11, 20, 2, 5, 0, 250_000, tzinfo=timezone.utc),
        seconds=300.25,
        rows=13,
        records=12,
        rejected=1,
        shards=2,
        shards_reused=0,
        records_per_second=0.04,
        manifest_sha256="ab" if state == "published" else "",
        versions={"recordmill": "0.2.0", "apache-beam": "2.77.0"},
        **more,
    )


def shard(number: int, size: int) -> ShardEntry:
    return ShardEntry(
        file=f"birds-train.tfrecord-{number:05d}-of-00002",
        records=6,
        bytes=size,
        payload=1,
        sha256="",
        crc32c=0,
        index_file=f"records/{number}",
        index_sha256="",
        images={},
    )


def manifest(base: BaseEntry | None = None) -> Manifest:
    train = SplitEntry(
        rows=13, records=12, rejected=1, duplicates=0, shards=(shard(0, 1000), shard(1, 500))
    )
    return Manifest(
        format_version=1,
        name="birds",
        version="1.0.0",
        fingerprint="",
        config={},
        dataset_schema=SCHEMA,
        classes={"label": ("a", "b")},
        input=RowCounts.of(13, {"train": train}, reasons=Counter(empty=1)),
        images={},
        splits={"train": train},
        sidecars={},
        content=DuplicateStats(duplicates={}, leaks=()),
        base=base,
    )


def document(of: RunSource, state: RunRecord, published: Manifest | None = None) -> dict[str, Any]:
    event: dict[str, Any] = Serde.to_dict(_event_of(of, state, published))
    validate([event])
    return event


def run_facets(*tags: tuple[str, str]) -> dict[str, Any]:
    named = [{"key": key, "value": value, "source": "RECORDMILL"} for key, value in tags]
    return {
        "processing_engine": facet(
            "ProcessingEngineRunFacet",
            "1-1-1",
            name="Apache Beam",
            version="2.77.0",
            openlineageAdapterVersion="0.2.0",
        ),
        "tags": facet("TagsRunFacet", "1-0-0", tags=named),
    }


JOB_TYPE = facet(
    "JobTypeJobFacet",
    "2-0-4",
    processingType="BATCH",
    integration="RECORDMILL",
    jobType="CONVERT",
)


def test_the_event_of_a_start() -> None:
    assert document(source(), record("running", 1)) == {
        "eventType": "START",
        "eventTime": "2026-11-20T02:00:00+00:00",
        "producer": BY,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": RUN, "facets": run_facets(("runner", "FlinkRunner"))},
        "job": {
            "namespace": "recordmill",
            "name": "convert.birds",
            "facets": {"jobType": JOB_TYPE},
        },
        "inputs": [{"namespace": "s3://in", "name": "a.csv", "facets": {}, "inputFacets": {}}],
        "outputs": [{"namespace": "file", "name": "/out/birds", "facets": {}, "outputFacets": {}}],
    }


def test_the_event_of_a_published_dataset() -> None:
    event = document(source(), record("published"), manifest())
    assert (event["eventType"], event["eventTime"]) == (
        "COMPLETE",
        "2026-11-20T02:05:00.250000+00:00",
    )
    assert event["run"]["facets"] == run_facets(("runner", "FlinkRunner"), ("exit_code", "0"))
    assert event["inputs"] == [
        {
            "namespace": "s3://in",
            "name": "a.csv",
            "facets": {},
            "inputFacets": {
                "inputStatistics": facet(
                    "InputStatisticsInputDatasetFacet",
                    "1-0-0",
                    rowCount=13,
                    size=150,
                    fileCount=2,
                )
            },
        }
    ]
    fields = [
        {"name": "image", "type": "bytes", "fields": []},
        {
            "name": "label",
            "type": "int64",
            "description": "class label, 2 classes",
            "fields": [],
        },
        {"name": "size", "type": "float[2]", "fields": []},
        {"name": "pairs", "type": "int64[?, 4]", "fields": []},
        {"name": "tags", "type": "bytes[]", "fields": []},
    ]
    checksum = {"key": "manifest_sha256", "value": "ab", "source": "RECORDMILL"}
    assert event["outputs"] == [
        {
            "namespace": "file",
            "name": "/out/birds",
            "facets": {
                "version": facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion="1.0.0"),
                "schema": facet("SchemaDatasetFacet", "1-2-0", fields=fields),
                "tags": facet("TagsDatasetFacet", "1-0-0", tags=[checksum]),
            },
            "outputFacets": {
                "outputStatistics": facet(
                    "OutputStatisticsOutputDatasetFacet",
                    "1-0-2",
                    rowCount=12,
                    size=1500,
                    fileCount=2,
                )
            },
        }
    ]


@pytest.mark.parametrize(
    ("state", "code", "kind"), [("failed", 4, "FAIL"), ("interrupted", 143, "ABORT")]
)
def test_the_event_of_a_run_that_did_not_publish(state: str, code: int, kind: str) -> None:
    event = document(source(), record(state, code, "not published: 1 of 13 rows"))
    assert event["eventType"] == kind
    tags = (("runner", "FlinkRunner"), ("exit_code", str(code)))
    message = facet(
        "ErrorMessageRunFacet",
        "1-0-1",
        message="not published: 1 of 13 rows",
        programmingLanguage="PYTHON",
    )
    assert event["run"]["facets"] == {**run_facets(*tags), "errorMessage": message}
    assert event["inputs"][0]["inputFacets"] == event["outputs"][0]["facets"] == {}


def test_a_base_version_is_an_input_with_its_version_and_the_records_kept() -> None:
    kept = BaseEntry(
        version="0.9.0",
        manifest_sha256="",
        kept={"train": 8, "test": 2},
        new={},
        gone={},
        shards_unchanged=0,
    )
    of = source(base="/out/birds/0.9.0", append=True)
    table, base = document(of, record("published"), manifest(kept))["inputs"]
    name = "InputStatisticsInputDatasetFacet"
    # With the rows of the base version, those of the table are not known.
    assert table["inputFacets"] == {"inputStatistics": facet(name, "1-0-0", size=150, fileCount=2)}
    assert base == {
        "namespace": "file",
        "name": "/out/birds",
        "facets": {"version": facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion="0.9.0")},
        "inputFacets": {"inputStatistics": facet(name, "1-0-0", rowCount=10)},
    }


def test_statistics_of_one_of_several_tables_are_not_known() -> None:
    of = source(inputs=("s3://in/a.csv", "s3://in/b.csv"))
    inputs = document(of, record("published"), manifest())["inputs"]
    assert [one["inputFacets"] for one in inputs] == [{}, {}]


ROOT_RUN = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("root", [None, f"airflow/daily/{ROOT_RUN}"])
def test_the_run_of_a_scheduler_is_the_parent(root: str | None) -> None:
    environment = {
        "OPENLINEAGE_NAMESPACE": "prod",
        "OPENLINEAGE_PARENT_ID": f"http://airflow:8080/daily.convert/{ID}",
        "OPENLINEAGE_ROOT_PARENT_ID": root or "",
    }
    event = document(source(environment), record("running"))
    run, job = {"runId": RUN}, {"namespace": "http://airflow:8080", "name": "daily.convert"}
    top, top_job = (
        ({"runId": ROOT_RUN}, {"namespace": "airflow", "name": "daily"}) if root else (run, job)
    )
    assert event["job"]["namespace"] == "prod"
    parent = facet(
        "ParentRunFacet",
        "1-2-0",
        run={**run, "facets": {}},
        job={**job, "facets": {}},
        root={"run": {**top, "facets": {}}, "job": {**top_job, "facets": {}}},
    )
    assert event["run"]["facets"]["parent"] == parent


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("eventType",), "DONE"),
        (("eventTime",), "2026-11-20"),
        (("producer",), "recordmill"),
        (("run", "runId"), ID[1:]),
        (("run", "facets", "tags", "_schemaURL"), "https://openlineage.io/spec/"),
        (("job", "name"), 7),
        (("job", "extra"), ""),
        (("outputs", 0, "outputFacets", "outputStatistics", "rowCount"), "12"),
        (("outputs", 0, "facets", "version"), JOB_TYPE),
    ],
)
def test_the_schema_finds_mistakes(path: tuple[Any, ...], value: Any) -> None:
    event = document(source(), record("published"), manifest())
    *folders, name = path
    inner: Any = event
    for key in folders:
        inner = inner[key]
    inner[name] = value
    with pytest.raises(ValidationError):
        validate([event])


@pytest.mark.parametrize("value", ["daily", "airflow/daily", "airflow/daily/today"])
def test_an_invalid_parent_is_an_error(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        _event_of(source({"OPENLINEAGE_PARENT_ID": value}), record("running"))
    assert str(caught.value) == (
        f"OPENLINEAGE_PARENT_ID: {value!r} names no run; expected NAMESPACE/JOB/UUID. Correct it."
    )
