"""Transforms for users' own pipelines: dicts in, examples or a dataset out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

from recordmill.pipelines.convert import open_inputs, prepare
from recordmill.pipelines.dict_rows import (
    BuildExamples,
    ReadTables,
    VerifyRecords,
    WriteDataset,
    WrittenDataset,
)
from recordmill.pipelines.graph import build
from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import DatasetExists, RejectBudgetExceeded, UsageError
from tests.beam.direct import direct_pipeline, example, records
from tests.images import jpeg, png

ROWS = 24


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Rows of images with paths and labels."""
    made = []
    for number in range(ROWS):
        path = tmp_path / f"{number}.img"
        path.write_bytes(jpeg(seed=number) if number % 2 else png(seed=number))
        made.append({"image": str(path), "label": ("cat", "dog")[number % 3 == 0]})
    return made


_results: list[WrittenDataset] = []
"""Results of pipelines; a global, because the runner is in this process."""


def write(rows: list[Any], output: Path, **options: Any) -> WrittenDataset:
    """Runs a user's pipeline that writes a dataset, and returns the result."""
    _results.clear()
    with direct_pipeline() as p:
        transform = WriteDataset(str(output), "birds", **{"report": False, **options})
        _ = p | beam.Create(rows) | transform | beam.Map(_keep)
    (result,) = _results
    return result


def _keep(result: WrittenDataset) -> None:
    _results.append(result)


def converted(table: Path, output: Path, **options: Any) -> Path:
    """Converts a table and returns the dataset's folder."""
    config = config_of(
        {"input": [str(table)], "output": str(output), "name": "birds", "report": False, **options}
    )
    job = prepare(config, PipelineOptions([]), *open_inputs(config))
    assert job is not None
    with direct_pipeline() as p:
        build(p, job)
    job.lock.release()
    return Path(config.directory)


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def shards(dataset: Path | str) -> dict[str, bytes]:
    """Returns every shard of a dataset."""
    return {path.name: path.read_bytes() for path in Path(dataset).glob("*.tfrecord*")}


def test_each_row_becomes_an_example_or_a_reject(rows: list[dict[str, Any]]) -> None:
    broken = [{"image": "gone.jpg", "label": "cat"}, {"image": rows[0]["image"], "label": "fish"}]
    paths = [row["image"] for row in rows]
    examples = [
        example(path, read(path), ("cat", "dog").index(row["label"]))
        for path, row in zip(paths, rows, strict=True)
    ]
    with direct_pipeline() as p:
        built = p | beam.Create([*rows, *broken]) | BuildExamples(classes=["cat", "dog"])
        assert_that(built.examples, equal_to(examples), label="Examples")
        rejects = [
            {
                "key": "gone.jpg",
                "uri": "gone.jpg",
                "source": "row gone.jpg",
                "reason": "missing_file",
                "detail": "gone.jpg: No such file or directory",
            },
            {
                "key": paths[0],
                "uri": paths[0],
                "source": f"row {paths[0]}",
                "reason": "unknown_label",
                "detail": "column 'label': 'fish' is not one of the 2 classes",
            },
        ]
        assert_that(built.rejects, equal_to(rejects), label="Rejects")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (
            ("img", "label"),
            "has no column 'image' (did you mean 'img'?); it has: img, label. "
            "Name it with columns.",
        ),
        (("image", "lable"), "has no column 'label' (did you mean 'lable'?); it has: image, lable"),
    ],
)
def test_an_error_has_the_rejects_and_the_folder_of_its_run(
    names: tuple[str, str], why: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    others = [dict(zip(names, row.values(), strict=True)) for row in rows]
    with pytest.raises(RejectBudgetExceeded, match="missing_value") as caught:
        write(others, tmp_path)
    assert why in str(caught.value)
    assert str(caught.value).count("it has: ") == 1
    assert caught.value.reject_reasons == {"missing_value": ROWS}
    (first,) = caught.value.first_rejects
    assert first["reason"] == "missing_value"
    assert why in first["detail"]
    assert caught.value.directory == str(tmp_path / "birds/1.0.0")
    assert (Path(caught.value.directory) / "run.json").exists()


def test_examples_equal_the_records_of_convert(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = str(tmp_path)
    relative = [{"file": Path(r["image"]).name, "class": r["label"]} for r in rows]
    with_bytes = [
        {**row, "file": {"bytes": read(f"{folder}/{row['file']}"), "path": row["file"]}}
        for row in relative
    ]
    pq.write_table(pa.Table.from_pylist(relative), tmp_path / "rows.parquet")
    options = {
        "schema": "tf_slim",
        "columns": {"image": "file", "label": "class"},
        "image_root": folder,
    }
    dataset = converted(tmp_path / "rows.parquet", tmp_path / "out", **options)
    expected = [record for path in sorted(dataset.glob("*.tfrecord*")) for record in records(path)]
    with direct_pipeline() as p:
        for label, some in (("Paths", relative), ("Bytes", with_bytes)):
            transform = BuildExamples(classes=["cat", "dog"], **options)
            built = p | f"Create{label}" >> beam.Create(some) | f"Build{label}" >> transform
            assert_that(built.examples, equal_to(expected), label=label)


@pytest.mark.parametrize("image", ["path", "bytes"])
def test_a_dataset_has_the_same_shards_as_convert_writes(
    image: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "splits": {"train": 0.7, "test": 0.3},
        "num_shards": {"train": 2, "test": 1},
    }
    if image == "bytes":
        options["key_column"] = "id"
        rows = [{**row, "id": row["image"][-6:], "image": read(row["image"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    dataset = converted(tmp_path / "rows.parquet", tmp_path / "converted", **options)
    found = write(rows[::-1], tmp_path / "written", **options)
    path = tmp_path / "written" / "birds" / "1.0.0"
    assert found == WrittenDataset(str(path), ROWS, 0)
    assert len(shards(path)) == 3
    assert shards(path) == shards(dataset)
    assert [entry.name for entry in path.parent.iterdir()] == ["1.0.0"]  # nothing else is left


def test_one_row_per_key_is_kept_in_any_order(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    other = {**rows[0], "label": "fish"}
    same = [rows[1], rows[1]]
    found = []
    for name, some in (("one", [*rows, other, *same]), ("two", [*same, other, *rows[::-1]])):
        result = write(some, tmp_path / name, max_rejects="3")
        assert (result.records, result.rejected) == (ROWS, 3)
        (rejects,) = Path(result.path, "rejects").iterdir()
        lines = sorted(rejects.read_text().splitlines())
        assert {json.loads(line)["reason"] for line in lines} == {"duplicate_key"}
        assert {json.loads(line)["source"] for line in lines} == {
            f"row {rows[0]['image']}",
            f"row {rows[1]['image']}",
        }
        found.append((shards(result.path), lines))
    assert found[0] == found[1]


def test_all_identical_rows_except_one_are_dropped(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = write([*rows, rows[1], rows[1]], tmp_path, deduplicate="content")
    assert (result.records, result.rejected) == (ROWS, 0)
    manifest = json.loads(Path(result.path, "manifest.json").read_bytes())
    assert manifest["input"]["duplicates"] == 2


def test_too_many_rejects_fail_the_pipeline_and_the_next_run_resumes(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows.append({"image": "gone.jpg", "label": "cat"})
    with pytest.raises(RejectBudgetExceeded, match=r"1 of 25 rows was rejected \(1 missing_file\)"):
        write(rows, tmp_path)
    left = tmp_path / "birds" / "1.0.0"
    assert not (left / "_SUCCESS").exists()
    assert len(list((left / "rejects").iterdir())) == 1
    assert write(rows, tmp_path, max_rejects="1").rejected == 1


def test_a_published_dataset_is_not_replaced_by_default(
    rows: list[dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = write(rows, tmp_path)
    with pytest.raises(DatasetExists, match="is already published"):
        write(rows, tmp_path)
    assert write(rows[:2], tmp_path, if_exists="skip") == first
    assert "was published" not in caplog.text
    assert write(rows[:2], tmp_path, if_exists="skip", seed=1) == first
    assert "was published with other options (--seed), not those of this" in caplog.text
    assert write(rows[:2], tmp_path, if_exists="replace").records == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input": "a.csv"},
            "input: the rows come from the pipeline. Read, join and select them there",
        ),
        ({"schema": "tabular"}, "schema 'tabular': has no image, whose path could be the key"),
        ({"schema": "none"}, "--schema none"),
        (
            {"schema": "tf_slim", "row_columns": ["image"]},
            "a row has no column 'label'",
        ),
    ],
)
def test_invalid_options_are_usage_errors_at_construction(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        WriteDataset("out", "birds", **options)
    with pytest.raises(UsageError, match=message):
        BuildExamples(**options)


@pytest.mark.parametrize("schema", ["image_sequence", "tabular"])
def test_schemas_that_need_all_rows_are_rejected(schema: str) -> None:
    with pytest.raises(UsageError, match=r"needs all rows, but .* Use WriteDataset\."):
        BuildExamples(schema, key_column="id")


def test_examples_chain_with_sinks_and_error_handlers(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    broken = {"image": "gone.jpg", "label": "cat"}
    with direct_pipeline() as p:
        handler = ErrorHandler(beam.Map(lambda reject: reject["reason"]))
        with handler:
            verified = (
                p
                | beam.Create([*rows, broken])
                | BuildExamples(classes=["cat", "dog"]).with_error_handler(handler)
                | beam.io.WriteToTFRecord(str(tmp_path / "out" / "x"), num_shards=2)
                | VerifyRecords()
            )
        assert_that(handler.output(), equal_to(["missing_file"]), label="Rejects")
        names = verified | beam.Map(lambda pair: Path(pair[0]).name)
        shards = [f"x-0000{shard}-of-00002" for shard in range(2)]
        assert_that(names, equal_to(shards), label="Files")
        total = verified | beam.Values() | beam.CombineGlobally(sum)
        assert_that(total, equal_to([len(rows)]), label="Records")


def test_a_chain_without_a_handler_fails_at_a_reject(rows: list[dict[str, Any]]) -> None:
    broken = {"image": "gone.jpg", "label": "cat"}
    transform = BuildExamples(classes=["cat", "dog"])
    with pytest.raises(Exception, match=r"row gone\.jpg: missing_file"), direct_pipeline() as p:
        _ = p | beam.Create([*rows, broken]) | transform | beam.Map(len)


def test_verify_records_fails_at_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"no record of anything")
    with pytest.raises(Exception, match=r"x\.tfrecord: record 0 at byte 0"), direct_pipeline() as p:
        _ = p | beam.Create([str(path)]) | VerifyRecords()


def test_elements_that_are_no_dicts_are_usage_errors_at_construction(tmp_path: Path) -> None:
    for transform in (BuildExamples("tf_tutorial"), WriteDataset(str(tmp_path), "a")):
        with pytest.raises(UsageError, match=r"expected dicts .*, got str"):
            _ = beam.Pipeline() | beam.Create(["a", "b"]) | transform
    with pytest.raises(UsageError, match="level='all': expected one of parse, decode"):
        VerifyRecords("all")  # type: ignore[arg-type]


@pytest.fixture
def table(rows: list[dict[str, Any]], tmp_path: Path) -> Path:
    """A CSV table with relative paths and numbers as labels."""
    lines = [f"{Path(row['image']).name},{number % 3}" for number, row in enumerate(rows)]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["image,label", *lines, ""]))
    return path


def test_read_tables_names_the_source_of_each_row(table: Path) -> None:
    with direct_pipeline() as p:
        source = {"file": str(table), "line": 2, "untyped": ["image", "label"]}
        first = p | ReadTables(table) | beam.Filter(lambda row: row["image"] == "0.img")
        assert_that(first, equal_to([{"image": "0.img", "label": "0", "_source": source}]))


def test_labels_with_class_names_need_classes(rows: list[dict[str, Any]]) -> None:
    labels = ("cat", 1.5)
    broken = [{**row, "label": label} for row, label in zip(rows, labels, strict=False)]
    with direct_pipeline() as p:
        built = p | beam.Create(broken) | BuildExamples()
        details = [
            "column 'label': expected an int64, got 'cat'. Class names need classes=[…]",
            "column 'label': expected a class name or id, got 1.5. For labels that are quantities, "
            "recordmill schema --infer TABLE prints a schema with kind: float, for --schema.",
        ]
        assert_that(built.rejects | beam.Map(lambda reject: reject["detail"]), equal_to(details))


def test_rows_of_tables_become_the_records_of_convert(table: Path, tmp_path: Path) -> None:
    with table.open("a") as stream:
        stream.write("gone.img,1\n0.img,1,2\n")
    dataset = converted(table, tmp_path / "out", max_rejects="2")
    expected = [record for path in sorted(dataset.glob("*.tfrecord*")) for record in records(path)]
    with direct_pipeline() as p:
        handler = ErrorHandler(beam.Map(lambda reject: (reject["source"], reject["reason"])))
        with handler:
            built = (
                p
                | ReadTables(table).with_error_handler(handler)
                | BuildExamples().with_error_handler(handler)
            )
        assert_that(built, equal_to(expected), label="Examples")
        rejects = [(f"{table}:26", "missing_file"), (f"{table}:27", "malformed_row")]
        assert_that(handler.output(), equal_to(rejects), label="Rejects")


def test_a_dataset_of_read_tables_has_the_shards_of_convert(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Images without paths: their keys are the numbers of their rows."""
    embedded = [{"photo": read(row["image"]), "label": row["label"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(embedded), tmp_path / "a.parquet", row_group_size=5)
    options: dict[str, Any] = {"columns": {"image": "photo"}, "report": False}
    dataset = converted(tmp_path / "a.parquet", tmp_path / "converted", **options)
    with direct_pipeline() as p:
        transform = WriteDataset(str(tmp_path / "written"), "birds", **options)
        _ = p | ReadTables(str(tmp_path / "a.parq*")) | transform
    assert shards(tmp_path / "written" / "birds" / "1.0.0") == shards(dataset)


def test_a_row_that_cannot_be_read_fails_a_pipeline_without_a_handler(table: Path) -> None:
    table.write_text("image,label\n0.img,1,2\n")
    with pytest.raises(Exception, match=r"labels\.csv:2: malformed_row"), direct_pipeline() as p:
        _ = p | ReadTables(table)


def test_errors_of_tables_are_usage_errors_at_construction(table: Path, tmp_path: Path) -> None:
    def read(path: Path = table, **options: Any) -> Any:
        return beam.Pipeline() | ReadTables(path, **options)

    with pytest.raises(
        UsageError, match=r"labels\.csv has no column 'lable' \(did you mean 'label'"
    ):
        read(columns=["image", "lable"])
    with pytest.raises(UsageError, match="feature 'label': a row has no column 'label'; it has: "):
        _ = read(columns=["image"]) | BuildExamples()
    with pytest.raises(
        UsageError, match="--columns lable=…: schema 'image_classification' has no such"
    ):
        _ = read() | BuildExamples(columns={"lable": "label"})
    with pytest.raises(UsageError, match=r"none\.csv: no such"):
        read(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="--input_format"):
        read(input_format="xml")
    (tmp_path / "own.csv").write_text("image,_source\na,b\n")
    with pytest.raises(UsageError, match="the column '_source' is reserved"):
        read(tmp_path / "own.csv")
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "photos" / "cats" / "a.jpg").write_bytes(jpeg())
    with pytest.raises(UsageError, match="photos: expected a table, got the format folder"):
        read(tmp_path / "photos")
