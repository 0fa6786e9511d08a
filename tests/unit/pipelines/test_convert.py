"""A run ends with a run record, whatever fails in it, and always releases its dataset."""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import open_inputs, prepare, run
from recordmill.pipelines.graph import Conversion, build
from recordmill.pipelines.options import config_of, with_implied_options
from recordmill.pipelines.run.run_record import RunRecord
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas.errors import DatasetExists, UsageError, VerificationFailed
from recordmill.schemas.findings import finding
from recordmill.transforms.inputs.input_tables import probe_tables
from tests.images import jpeg

Stages = Callable[[beam.Pipeline, Conversion], object]


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Conversion | None]:
    """Prepares a conversion of two rows without images."""
    (tmp_path / "t.csv").write_text("n,x\n1,a\n2,b\n")

    def prepared_job(**options: object) -> Conversion | None:
        paths = {"input": [str(tmp_path / "t.csv")], "output": str(tmp_path), "name": "birds"}
        of_table = {"schema": "tabular", "key_column": "n", "report": False}
        config = config_of({**paths, **of_table, **options})
        return prepare(config, PipelineOptions([]), *open_inputs(config))

    return prepared_job


def ended(job: Conversion | None, stages: Stages, interrupt: Interrupt | None = None) -> RunRecord:
    """Runs a conversion and returns its record, which run.json holds, too."""
    assert job is not None
    record = run(job, PipelineOptions([]), interrupt or Interrupt(), stages=stages)
    assert json.loads(Path(job.target.final, "run.json").read_bytes())["state"] == record.state
    return record


def failing(error: BaseException) -> Stages:
    """Returns stages whose construction fails."""

    def fail(root: beam.Pipeline, job: Conversion) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (VerificationFailed("train-0: differs"), 3, "train-0: differs"),
        (ValueError("no more"), 1, "the engine failed: ValueError: no more"),
    ],
)
def test_failures_are_recorded(
    error: Exception, code: int, message: str, prepared: Callable[..., Conversion | None]
) -> None:
    record = ended(prepared(), failing(error))
    assert (record.state, record.exit_code, record.message) == ("failed", code, message)
    assert prepared() is not None  # the dataset is not locked any more


def test_an_engine_that_ends_without_a_result(prepared: Callable[..., Conversion | None]) -> None:
    job = prepared()
    assert job is not None
    record = ended(job, lambda root, _: root | beam.Create([1]))
    assert record.message == f"{job.target.work}: the engine ended without a result. See its log."


def test_a_signal_is_recorded_with_the_shards_that_are_kept(
    prepared: Callable[..., Conversion | None],
) -> None:
    interrupt = Interrupt()
    interrupt.number = signal.SIGTERM
    record = ended(prepared(), failing(KeyboardInterrupt()), interrupt)
    assert (record.state, record.exit_code) == ("interrupted", 143)
    assert record.message.endswith("; no shard was finished. Run the command again.")


def test_an_interrupt_of_the_host_program_is_raised_again(
    tmp_path: Path, prepared: Callable[..., Conversion | None]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        ended(prepared(), failing(KeyboardInterrupt()))
    record = json.loads((tmp_path / "birds/1.0.0/run.json").read_bytes())
    assert (record["state"], record["message"]) == ("failed", "interrupted")


def test_a_failure_after_publishing_does_not_fail_the_run(
    prepared: Callable[..., Conversion | None],
) -> None:
    def publish_and_fail(_: beam.Pipeline, job: Conversion) -> None:
        with beam.Pipeline("DirectRunner") as pipeline:
            build(pipeline, job)
        raise ConnectionError("the engine is gone")

    record = ended(prepared(), publish_and_fail)
    assert (record.state, record.exit_code, record.records) == ("published", 0, 2)


def test_a_published_dataset_is_kept(prepared: Callable[..., Conversion | None]) -> None:
    assert ended(prepared(), build).state == "published"
    with pytest.raises(DatasetExists):
        prepared()
    assert prepared(if_exists="skip") is None


def test_the_coco_file_without_annotations_is_named(tmp_path: Path) -> None:
    document = {"images": [{"id": 1, "file_name": "1.jpg"}], "categories": [{"id": 1, "name": "a"}]}
    found = {"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}]}
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, content in zip(paths, (document | found, document), strict=True):
        Path(path).write_text(json.dumps(content))
    given = {"input": paths, "output": str(tmp_path), "name": "birds"}
    with pytest.raises(UsageError, match=f"^--input {re.escape(paths[1])}: expected annotations"):
        with_implied_options(given, probe_tables(config_of(given)))


def test_missing_shards_of_the_input_are_a_warning(tmp_path: Path) -> None:
    for name in ("a-00000-of-00003.csv", "a-00002-of-00003.csv", "b.csv"):
        (tmp_path / name).write_text("image,label\n1.jpg,cat\n")
    given = {"input": [f"{tmp_path}/*.csv"], "output": str(tmp_path), "name": "birds"}
    _, tables = with_implied_options(given, probe_tables(config_of(given)))
    text = f"{tmp_path}/a-*-of-00003.csv: 1 of 3 shard is missing: 1"
    assert [found for found in tables.findings if found.kind == "missing_shards"] == [
        finding("warning", "missing_shards", text)
    ]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("column", ["image", "mask"])
def test_embedded_images_are_not_compared(column: str, suffix: str, tmp_path: Path) -> None:
    """The analyze pass would select other rows: it does not read them."""
    path, rows = tmp_path / f"t.{suffix}", {"image": jpeg(), "mask": jpeg(), "n": 3}
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([rows]), path)
    else:
        rows |= {name: base64.b64encode(jpeg()).decode() for name in ("image", "mask")}
        path.write_text(json.dumps(rows) + "\n")
    paths = {"input": [str(path)], "output": str(tmp_path), "name": "birds"}
    options = {**paths, "schema": "segmentation", "key_column": "n"}
    message = (
        f"--where: column '{column}' has embedded images; expected texts or numbers. "
        "Compare another column."
    )
    for where in ("n > 2", f"n > 2 and {column} != 'x'"):
        given = {**options, "where": where}
        config, tables = with_implied_options(given, probe_tables(config_of(given)))
        fails = pytest.raises(UsageError, match=f"^{re.escape(message)}$")
        with fails if column in where else nullcontext():
            prepare(config, PipelineOptions([]), tables, None, dry_run=True)


def test_a_format_states_the_annotations_without_which_it_has_no_preset(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "a.jpg", "height": 4, "width": 4}]
    (tmp_path / "test.json").write_text(json.dumps({"images": images}))
    given = {"input": [str(tmp_path / "test.json")], "output": str(tmp_path), "name": "x"}
    with pytest.raises(
        UsageError, match="expected annotations with bbox, segmentation, caption or category_id"
    ):
        with_implied_options(given, probe_tables(config_of(given)))
    stated = {**given, "columns": {"label": "id"}}
    with_implied_options(stated, probe_tables(config_of(stated)))


@pytest.mark.parametrize(
    ("labels", "where", "expected"),
    [
        ("cat", "label == 'cat'", "species == 'cat'"),
        ("cat", "'cat' in label", "species == 'cat'"),
        ("cat", "label not in ('cat', 'dog')", "species == 'cat'"),
        ("cat", "lable == 'cat'", None),
        (["cat", "dog"], "labels == 'cat'", "'cat' in species"),
        (["cat", "dog"], "column('image/object/class/label') == 'cat'", "'cat' in species"),
    ],
)
def test_a_condition_on_classes_of_another_column_is_named(
    labels: object, where: str, expected: str | None, tmp_path: Path
) -> None:
    box = [[0, 0, 1, 1]] * len(labels) if isinstance(labels, list) else []
    sides = {side: [b[i] for b in box] for i, side in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    row = {"image": "a.jpg", "species": labels, **(sides if box else {})}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    schema, column = ("object_detection", "labels") if box else ("image_classification", "label")
    paths = {"input": [str(tmp_path / "t.jsonl")], "output": str(tmp_path), "name": "birds"}
    config = config_of({**paths, "schema": schema, "columns": {column: "species"}, "where": where})
    with pytest.raises(
        UsageError, match=r"t.jsonl has no column '\S+'.* it has: image, species"
    ) as e:
        prepare(config, PipelineOptions([]), *open_inputs(config), dry_run=True)
    remedy = f"Its classes are in column 'species': --where \"{expected}\""
    assert str(e.value).endswith(remedy) is (expected is not None)
