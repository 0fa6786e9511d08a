"""Tables with a row per box, as people have them, are read with a row per image."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.graph import projection_of
from recordmill.pipelines.options import config_of, with_implied_options
from recordmill.schemas.records import MORE_BOXES, Row, SkippedInput
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import probe_tables

RACCOON = (
    "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    "1.jpg,100,80,cat,10,8,60,48\n2.jpg,80,40,dog,1,2,3,4\n1.jpg,100,80,dog,50,40,90,72\n"
)
RETINANET = "1.jpg,10,8,60,48,cat\n2.jpg,1,2,3,4,dog\n1.jpg,50,40,90,72,dog\n3.jpg,,,,,\n"
OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n"
    "1,x,/m/0c,1,0.1,0.6,0.1,0.6\n2,x,/m/0d,1,0.2,0.4,0,1\n1,x,/m/0d,1,0.5,0.9,0.5,0.9\n"
)

STATED = {"schema": "object_detection", "columns": "image=filename"}


def opened(path, **options):
    options = {"input": [str(path)], "output": "out", "name": "birds", **options}
    return with_implied_options(options, probe_tables(config_of(options)))


def rows_of(config, tables):
    (file,) = tables.files
    projection = projection_of(config.dataset_schema, config)
    found = list(FORMATS[file.format].rows(file, projection))
    more = sum(one.number for one in found if isinstance(one, SkippedInput))
    assert all(one.kind == MORE_BOXES for one in found if isinstance(one, SkippedInput))
    names = [config.column(name) for name in ("image", "labels", "xmin", "xmax")]
    rows = [[row.values[name] for name in names] for row in found if isinstance(row, Row)]
    return sorted(rows, key=lambda row: str(row[0])), more


def value_of(text):
    return float(text) if text.isdigit() else text


def write(path, text, suffix):
    path = path / f"t.{suffix}"
    header, *lines = (line.split(",") for line in text.splitlines())
    rows = [dict(zip(header, map(value_of, line), strict=True)) for line in lines]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=1)
    elif suffix == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    "options", [{}, {"schema": "object_detection", "columns": "image=filename"}]
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_rows_of_an_image_are_one_record(suffix, options, tmp_path):
    path = write(tmp_path, RACCOON, suffix)
    config, tables = opened(path, **options)
    assert config.dataset_schema.name == "object_detection"
    assert (config.column("image"), config.column("labels")) == ("filename", "class")
    (note,) = (finding for finding in tables.findings if finding.kind == "row_per_box")
    assert (
        note.text == f"{path}: has a row per box; the rows with the same 'filename' are one record"
    )
    number = str if suffix == "csv" else float
    assert rows_of(config, tables) == (
        [
            ["1.jpg", ["cat", "dog"], [number("10"), number("50")], [number("60"), number("90")]],
            ["2.jpg", ["dog"], [number("1")], [number("3")]],
        ],
        1,
    )


def test_a_table_of_labels_has_no_image_twice(tmp_path):
    text = RACCOON.replace("filename", "image").replace("class", "label")
    config, _ = opened(write(tmp_path, text, "csv"))
    assert (config.dataset_schema.name, config.column("labels")) == ("object_detection", "label")


@pytest.mark.parametrize(("ids", "is_kept"), [("123", False), ("121", True)])
def test_ids_of_boxes_are_none_of_the_image(ids, is_kept, tmp_path):
    header, *lines = RACCOON.splitlines()
    lines = [f"{header},id", *(f"{line},{id_}" for line, id_ in zip(lines, ids, strict=True))]
    _, tables = opened(write(tmp_path, "\n".join(lines), "csv"))
    assert ("id" in tables.columns) is is_kept


def test_a_table_of_retinanet_has_no_header(tmp_path):
    config, tables = opened(write(tmp_path, RETINANET, "csv"))
    assert tables.columns == ("image", "xmin", "ymin", "xmax", "ymax", "labels")
    assert "has no header, and a row per box" in tables.findings[-1].text
    assert rows_of(config, tables) == (
        [
            ["1.jpg", ["cat", "dog"], ["10", "50"], ["60", "90"]],
            ["2.jpg", ["dog"], ["1"], ["3"]],
            ["3.jpg", [""], [""], [""]],
        ],
        1,
    )


def test_boxes_of_open_images_are_fractions(tmp_path):
    config, tables = opened(write(tmp_path, OPEN_IMAGES, "csv"))
    assert config.dataset_schema.boxes.units == "normalized"
    assert rows_of(config, tables)[0] == [
        ["1", ["/m/0c", "/m/0d"], ["0.1", "0.5"], ["0.6", "0.9"]],
        ["2", ["/m/0d"], ["0.2"], ["0.4"]],
    ]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (RACCOON, {"key_column": "width", **STATED}),
        (RACCOON, {"schema": "tabular"}),
        (OPEN_IMAGES, {"schema": "tabular"}),
        ("image,label,xmin,ymin,xmax,ymax\n1.jpg,cat,1,2,3,4\n2.jpg,dog,1,2,3,4\n", {}),
        ("image,labels,xmin,ymin,xmax,ymax\n1.jpg,[],[],[],[],[]\n", STATED),
    ],
)
def test_other_tables_keep_their_rows(text, options, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    _, tables = opened(tmp_path / "t.csv", **options)
    assert not any(file.grouped for file in tables.files)
