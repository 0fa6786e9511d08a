"""Tests of the inputs of a run: folders of tables, their partitions, and options of CSV tables."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.records import Row
from recordmill.schemas.tables import Exclusion, Part, Projection
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs import input_tables
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import probe_labels, probe_tables, unused_columns
from tests.images import png
from tests.unit.transforms.functional.sources.test_tfrecord import example, framed

ROWS = [{"image": f"{i}.png", "split": "ab"[i % 2], "year": 2000 + i % 3} for i in range(12)]


def config(*inputs: Path | str, **options: Any) -> Any:
    values = {"input": [str(path) for path in inputs], "output": "out", "name": "birds", **options}
    return config_of({**values, "schema": "tabular"})


def values_of(*inputs: Path | str, **options: Any) -> list[dict[str, Any]]:
    """Returns the values of all rows, in the order of the files."""
    found = []
    for file in probe_tables(config(*inputs, **options)).files:
        for part in FORMATS[file.format].parts(file):
            assert isinstance(part, Part)
            rows = one_by_one(FORMATS[file.format].read(part, Projection()))
            found += [dict(row.values) for row in rows if isinstance(row, Row)]
    return found


def message_of(*inputs: Path | str, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        probe_tables(config(*inputs, **options))
    return str(error.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "Git LFS pointer. Fetch the file with git",
        ),
        (
            b"<!DOCTYPE html><html>",
            "HTML. Download the file again: this is the answer of a server.",
        ),
        (gzip.compress(b"PAR1", mtime=0), "table: Parquet file size is 4 bytes"),
    ],
)
def test_files_that_are_no_parquet_are_named(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(data)
    assert why in message_of(tmp_path / "train.parquet")


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    """A folder with the layout of Spark's output."""
    schema = pa.schema([("split", pa.string()), ("year", pa.int64())])
    partitioning = ds.partitioning(schema, flavor="hive")
    table = pa.Table.from_pylist(ROWS)
    root = tmp_path / "table"
    ds.write_dataset(table, root, format="parquet", partitioning=partitioning)
    (root / "_SUCCESS").touch()
    (root / "split=a" / "._SUCCESS.crc").touch()
    return root


def test_partitions_of_a_folder_are_columns(hive: Path) -> None:
    assert probe_tables(config(hive)).columns == ("image", "split", "year")
    found = sorted(values_of(hive), key=lambda row: int(row["image"].partition(".")[0]))
    # The names of folders have no type, as in CSV.
    assert found == [{**row, "year": str(row["year"])} for row in ROWS]


def test_only_folders_that_a_pattern_leaves_open_are_columns(hive: Path) -> None:
    found = values_of(f"{hive}/split=a/year=*/*.parquet")
    assert sorted(found[0]) == ["image", "year"]
    assert len(found) == 6
    assert values_of(f"{hive}/split=a/*") == found
    assert sorted(values_of(hive / "split=b" / "year=2001")[0]) == ["image"]


def test_files_beside_the_tables_are_ignored_in_patterns(hive: Path) -> None:
    (hive / "_SUCCESS").rename(hive / "split=a" / "year=2000" / "_SUCCESS")
    assert len(values_of(f"{hive}/split=a/year=2000/*")) == 2


def test_a_folder_has_the_parts_of_one_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image,label\n1.png,cat\n")
    (tmp_path / "b.csv").write_text("image\n2.png\n")
    assert message_of(tmp_path) == (
        f"--input {tmp_path}: its tables have different columns: {tmp_path}/a.csv has 'label', "
        f"and {tmp_path}/b.csv has not. Name one of them, or a pattern of parts of one table."
    )
    (tmp_path / "b.csv").write_text("label,image\ndog,2.png\n")
    assert values_of(tmp_path) == [
        {"image": "1.png", "label": "cat"},
        {"image": "2.png", "label": "dog"},
    ]


def test_a_column_of_the_file_takes_precedence_over_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a=1").mkdir()
    (tmp_path / "a=1" / "t.csv").write_text("a,b\n2,3\n")
    assert values_of(tmp_path) == [{"a": "2", "b": "3"}]


def test_json_of_spark_is_json_lines(tmp_path: Path) -> None:
    (tmp_path / "part-00000-5d-c000.json").write_text('{"a": {"b": 1}}\n')
    assert values_of(tmp_path) == [{"a.b": 1}]


@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/data/*.parquet", "/data/day=*/*.parquet"])
def test_files_of_tables_with_a_log_are_rejected(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    for folder in (tmp_path, tmp_path / "data", tmp_path / "data" / "day=1"):
        ds.write_dataset(
            pa.table({"a": [1]}),
            folder,
            format="parquet",
            existing_data_behavior="overwrite_or_ignore",
        )
    assert message_of(f"{tmp_path}{pattern}").startswith(
        f"--input {tmp_path}: is a table of Delta; its Parquet files also contain deleted rows"
    )


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a;b\n1;2\n", {"delimiter": ";"}, {"a": "1", "b": "2"}),
        ("a\tb\n1\t2\n", {"delimiter": "tab"}, {"a": "1", "b": "2"}),
        ("1,2\n", {"header": "none"}, {"0": "1", "1": "2"}),
        ("1;2\n", {"header": "a, b", "delimiter": ";"}, {"a": "1", "b": "2"}),
        ("1,2\n", {"header": ["a", "b"]}, {"a": "1", "b": "2"}),
    ],
)
def test_delimiter_and_header_of_csv(
    tmp_path: Path, text: str, options: dict[str, Any], expected: dict[str, str]
) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert values_of(tmp_path / "t.csv", **options) == [expected]


@pytest.mark.parametrize("value", ["", ";;", "a", "7", '"', "\n", "ü"])
def test_a_delimiter_is_one_character(value: str) -> None:
    with pytest.raises(UsageError, match=r"(?s)^--delimiter .*: expected a single character"):
        config("t.csv", delimiter=value)


@pytest.mark.parametrize("value", ["", "a,,b", "a,b,a"])
def test_a_header_has_distinct_names(value: str) -> None:
    with pytest.raises(UsageError, match=r"^--header"):
        config("t.csv", header=value)


def test_options_of_csv_need_a_csv_table(hive: Path) -> None:
    assert message_of(hive, header="none") == (
        "--header: the input has no CSV or TSV table. Remove the option."
    )


def test_an_empty_part_does_not_lack_the_columns_of_the_others(tmp_path: Path) -> None:
    for day, data in ((1, b""), (2, b'{"image": "a.png"}\n')):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}/part.jsonl").write_bytes(data)
    assert probe_tables(config(tmp_path)).columns == ("image", "day")
    empty = probe_tables(config(tmp_path / "day=1"))
    assert (empty.columns, empty.has_rows) == ((), False)


def test_tables_with_too_many_columns_are_named(tmp_path: Path) -> None:
    table = tmp_path / "wide.csv"
    table.write_text(",".join(map(str, range(100_000))) + "\n" + "1," * 99_999 + "1\n")
    assert len(probe_tables(config(table)).columns) == 100_000
    table.write_text(",".join(map(str, range(100_001))) + "\n" + "1," * 100_000 + "1\n")
    assert message_of(table) == (
        f"--input {table}: has 100,001 columns; at most 100,000 are read. Put values of one kind "
        "in a list column, as Parquet and JSONL have them."
    )


def test_folders_are_walked_at_the_start_only_for_patterns(hive: Path, monkeypatch: Any) -> None:
    walked = []
    monkeypatch.setattr(input_tables, "unused_patterns", lambda tree: walked.append(tree) or [])
    probe_tables(config(hive))
    assert walked == []
    probe_tables(config(hive, exclude=["x"]))
    assert walked == [FileTree(str(hive), Exclusion(str(hive), ("x",)))]


def unused(path: Path, **options: Any) -> list[str]:
    """Returns the text of the finding on columns that nothing uses."""
    config = config_of({"input": [str(path)], "output": "out", "name": "x", **options})
    found = unused_columns([probe_tables(config)], config.dataset_schema, config)
    return [f"{one.severity}: {one.text}" for one in found]


def test_columns_that_nothing_uses_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,label,score,a,b,c,who\n1.jpg,x,1,2,3,4,5\n")
    assert unused(path) == ["info: not stored: score, a, b (and 2 more columns)"]
    used: dict[str, Any] = {"key_column": "a", "group_column": "who", "where": "score > 0"}
    assert unused(path, **used) == ["info: not stored: b, c"]
    assert unused(path, schema="tabular") == []
    path.write_text(",image,label\n0,1.jpg,x\n")
    assert unused(path) == ["info: not stored: ''"]
    path.write_text("image,label\n1.jpg,x\n")
    assert unused(path) == []
    # What is made of the image and the key, as in records of the same schema.
    path.write_text("image,name,width,other\n1.jpg,x,5,1\n")
    sources = {"image": "image:bytes", "name": "key", "width": "image:width"}
    kinds = {"image": "bytes", "name": "bytes", "width": "int64"}
    features = {n: {"kind": kinds[n], "from": source} for n, source in sources.items()}
    schema = Schema.model_validate({"name": "own", "features": features})
    assert unused(path, schema=schema) == ["info: not stored: other"]


def test_a_confidence_that_decides_nothing_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,label,Confidence\n1.jpg,x,1\n")
    warning = "warning: the column 'Confidence' does not decide which labels are stored"
    assert unused(path) == ["info: not stored: Confidence", warning]
    assert unused(path, where="Confidence > 0") == []
    assert unused(path, schema="tabular") == []


def test_used_columns_that_the_labels_have_too_are_named(tmp_path: Path) -> None:
    path, labels = tmp_path / "t.csv", tmp_path / "l.csv"
    path.write_text("image,label,note\n1.jpg,x,y\n")
    labels.write_text("image,label,note\n1.jpg,z,y\n")
    options = {"input": [str(path)], "labels": str(labels), "join_on": "image"}
    config = config_of({**options, "output": "out", "name": "x"})
    inputs = [probe_tables(config), probe_labels(config)]
    (found, _) = unused_columns(inputs, config.dataset_schema, config)
    assert (found.kind, found.line) == (
        "shared_columns",
        "note: --input and --labels have label, of which the values of --labels are read",
    )


def test_columns_that_only_some_tables_have_are_named(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("image,label,size,score\n1.jpg,x,1,2\n")
    (tmp_path / "2.csv").write_text("image,label,size,who\n2.jpg,x,1,2\n")
    said = "info: not stored: size, score, who; not all files have score, who"
    assert unused(tmp_path / "*.csv") == [said]
    assert unused(tmp_path / "*.csv", where="score > 0") == [
        "info: not stored: size, who; not all files have who"
    ]
    assert unused(tmp_path / "*.csv", schema="tabular") == []


def test_fields_beside_one_that_is_used_are_named_and_others_by_their_object(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"image": "1.jpg", "label": "x", "m": {"a": {"b": 1}}, "p": {"q": 1, "r": 2}}')
    assert unused(path, group_column="p.q") == ["info: not stored: m, p.r"]


def test_columns_of_annotation_formats_are_not_named(tmp_path: Path) -> None:
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "extra": 1}
    images = [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}]
    document = {"images": images, "categories": [{"id": 1, "name": "a"}], "annotations": [box]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    assert unused(tmp_path / "t.json") == []


def test_files_of_records_with_another_name_are_named(tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.rec", "c d"):
        (tmp_path / name).write_bytes(framed(example(n=[1])))
    (tmp_path / "weights.bin").write_bytes(b"weights")
    names = f"{tmp_path}/b.rec, {tmp_path}/c d"
    said = f"not read: {names}: other TFRecords in the folder; name them with --input"
    assert probe_tables(config(tmp_path)).recognized == (said,)
    found = probe_tables(config(tmp_path, tmp_path / "b.rec", tmp_path / "c d"))
    assert (len(found.files), found.recognized) == (3, ())


def test_features_of_records_that_nothing_reads_are_named(tmp_path: Path) -> None:
    box = [f"image/object/bbox/{side}" for side in ("xmin", "xmax", "ymin", "ymax")]
    numbers = {f"image/{name}": [7] for name in ("id", "class/label", "height", "width")}
    classes = {"image/object/class/text": [b"cat"], "image/object/class/label": [1]}
    path = tmp_path / "x-train.tfrecord-00000-of-00001"
    record = example(
        **{"image/encoded": [png(4, 4)], **numbers, **classes}, **{name: [0.5] for name in box}
    )
    path.write_bytes(framed(record))
    # The size follows from the image, the names of classes belong to their ids, and the split is
    # that of the name of the file.
    unread = "image/class/label, image/id"
    assert unused(path, schema="object_detection") == [f"info: not stored: {unread}"]
    assert unused(path, schema="tf_slim") == [
        "info: not stored: image/id, image/object/bbox/xmax, image/object/bbox/xmin "
        "(and 4 more columns)"
    ]
    assert unused(path, schema="tf_slim", columns={"label": "labels", "id": "image/id"}) == [
        "info: not stored: image/class/label, image/object/bbox/xmax, image/object/bbox/xmin "
        "(and 2 more columns)"
    ]
