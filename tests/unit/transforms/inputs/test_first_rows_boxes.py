"""Tables with a row per box, as people have them, are read with a row per image."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.graph import projection_of
from recordmill.pipelines.options import config_of, with_implied_options
from recordmill.schemas.errors import UsageError
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import MORE_BOXES, Row, SkippedInput
from recordmill.schemas.tables import Projection
from recordmill.transforms.functional.rows.annotations import Annotations
from recordmill.transforms.functional.rows.columns import resolve_sources
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


def test_only_columns_of_the_schema_are_mapped(tmp_path):
    schema = tmp_path / "own.yaml"
    features = {
        "image": {"kind": "bytes", "from": "image:bytes"},
        "label": {"kind": "int64", "from": "column:class", "classes": True, "shape": []},
        "box": {"kind": "float", "from": "box:yxyx", "shape": [None, 4]},
    }
    schema.write_text(json.dumps({"name": "own", "features": features}))
    path = write(tmp_path, RACCOON, "csv")
    config, _ = opened(path, schema=str(schema), columns="image=filename")
    assert config.columns == {"image": "filename"}
    resolve_sources(config.dataset_schema, RACCOON.split("\n")[0].split(","), config, "t.csv")


@pytest.mark.parametrize(("second", "captions"), [("1.jpg", [["a", "b", "c"]]), ("2.jpg", None)])
def test_the_captions_of_an_image_are_one_record(second, captions, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"image,caption,note\n1.jpg,a,x\n{second},b,y\n{second},c,z\n")
    options = {"schema": "captioning"}
    if captions is None:
        options["key_column"] = "note"  # each row is a record
    config, tables = opened(path, **options)
    (file,) = tables.files
    found = list(FORMATS[file.format].rows(file, projection_of(config.dataset_schema, config)))
    rows = [row.values["caption"] for row in found if isinstance(row, Row)]
    assert rows == (captions or ["a", "b", "c"])
    notes = [finding.text for finding in tables.findings if finding.kind == "row_per_box"]
    text = f"{path}: has a row per 'caption'; the rows with the same 'image' are one record"
    assert notes == ([text] if captions else [])


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


WHEAT = "image_id,width,height,bbox,source\n" + "".join(
    f'{image},100,80,"[{x}.0, 8.0, 50.0, 40.0]",usask\n' for image, x in (("1", 10), ("1", 50))
)
SIZED = "filename,X,Y,Width,Height,label\n1.jpg,10,8,50,40,cat\n1.jpg,5,4,40,32,dog\n"


def boxes_of(config, tables):
    """Returns the corners of the boxes in the only row, and the size of its image."""
    schema = resolve_sources(config.dataset_schema, tables.columns, config, "t.csv")
    (row,) = (r for r in FORMATS["csv"].rows(tables.files[0], Projection()) if isinstance(r, Row))
    found = Annotations(ResolvedSchema(schema, {}), config.columns)._boxes(row)
    return found.corners, found.size


@pytest.mark.parametrize(
    ("text", "order", "corners"),
    [
        (WHEAT, "xywh", [10, 8, 60, 48, 50, 8, 100, 48]),
        (WHEAT, "xyxy", [10, 8, 50, 40, 50, 8, 50, 40]),
        (SIZED, "xywh", [10, 8, 60, 48, 5, 4, 45, 36]),
        (SIZED, "cxcywh", [-15, -12, 35, 28, -15, -12, 25, 20]),
    ],
)
def test_boxes_have_the_order_that_is_stated(text, order, corners, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    stated = {"columns": "labels=source"} if text == WHEAT else {}
    config, tables = opened(tmp_path / "t.csv", boxes=f"order={order}", **stated)
    assert config.dataset_schema.name == "object_detection"
    # Widths and heights of boxes are not those of the annotated image.
    assert boxes_of(config, tables) == (corners, (100, 80) if text == WHEAT else None)


@pytest.mark.parametrize("other", ["1", "note.png"])
def test_the_only_column_with_names_of_images_is_that_of_images(other, tmp_path):
    lines = ["photo,x1,y1,x2,y2,kind,other", f"a.jpg,1,2,3,4,cat,{other}", "b.jpg,1,2,3,4,dog,2"]
    path = write(tmp_path, "\n".join(lines), "csv")
    config, tables = opened(path, columns="labels=kind")
    assert config.dataset_schema.name == "object_detection"
    assert (config.column("image"), tables.files[0].grouped) == ("photo", "photo")
    with pytest.raises(UsageError, match=r"has a row per box .* Name it with --columns labels=COL"):
        opened(path)


@pytest.mark.parametrize(
    "text",
    [
        "photo,x1,y1,x2,y2,kind,other\na.jpg,1,2,3,4,cat,a.png\n",
        "photo,x1,y1,x2,y2,kind,other\n1,1,2,3,4,cat,2\n",
        "photo,x1,y1,x2,y2,kind,other\n",
        "photo,x1,y1,x2,kind,other\na.jpg,1,2,3,cat,1\n",
    ],
)
def test_no_column_is_that_of_images_without_names_of_images(text, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    config, _ = opened(tmp_path / "t.csv")
    assert (config.dataset_schema.name, dict(config.columns)) == ("image_classification", {})


def test_columns_may_state_the_order(tmp_path):
    (tmp_path / "t.csv").write_text(SIZED.replace("X,Y", "left,top"))
    config, tables = opened(tmp_path / "t.csv", boxes="invalid=drop")
    assert config.dataset_schema.boxes.invalid == "drop"
    assert boxes_of(config, tables)[0] == [10, 8, 60, 48, 5, 4, 45, 36]
    note = "boxes: xywh, as their columns are named; --boxes order=… sets others"
    assert note in tables.recognized


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            WHEAT,
            {},
            "t.csv: has a row per box (bbox), and no column that is named like one of classes; it "
            "has: image_id, width, height, bbox, source. Name it with --columns labels=COLUMN, or "
            "add one if all are of one class; or name an image's class with --columns "
            "label=COLUMN.",
        ),
        (
            WHEAT,
            {"columns": "labels=source"},
            "t.csv: has a row per box, and does not state what the numbers in 'bbox' are, as in "
            "'[10.0, 8.0, 50.0, 40.0]'. Set --boxes order=xywh for left, top, width, height, or "
            "--boxes order=xyxy for two corners, or --boxes order=cxcywh for center, width, "
            "height, or --boxes order=yxyx for two corners, y first.",
        ),
        (
            WHEAT.replace("bbox", "kasten"),
            {"columns": "image=image_id,labels=source,bbox=kasten", "schema": "object_detection"},
            "t.csv: has a row per box, and does not state what the numbers in 'kasten' are, as in ",
        ),
        (
            SIZED,
            {"boxes": "units=pixel"},
            "t.csv: has a row per box, and does not state what the numbers in 'X', 'Y', 'Width', "
            "'Height' are, as in ['10', '8', '50', '40']. Set --boxes order=xywh for left, top, "
            "width, height, or --boxes order=cxcywh for center, width, height.",
        ),
    ],
)
def test_what_boxes_do_not_state_is_asked_for(text, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        opened("t.csv", **options)


def test_an_order_in_a_schema_file_is_stated(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "name: heads\nfeatures:\n  image: {kind: bytes, from: 'image:bytes'}\n"
        "  box: {kind: float, from: 'box:xyxy', shape: [null, 4]}\nimage: {column: image_id}\n"
        "boxes: {column: bbox, order: xywh}\n"
    )
    (tmp_path / "t.csv").write_text(WHEAT)
    config, tables = opened(tmp_path / "t.csv", schema=str(tmp_path / "s.yaml"))
    assert config.dataset_schema.boxes.order == "xywh"
    assert tables.files[0].grouped == "image_id"


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (
            "order=xywh",
            "^--boxes order=xywh: boxes of voc are read as corners, whatever their order",
        ),
        ("order=yxyx", "^--boxes order=yxyx: boxes of voc .* in the files. Leave out the order.$"),
        ("order=xyxy", ""),
    ],
)
def test_the_order_of_annotations_is_known(boxes, message, tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"")
    (tmp_path / "1.xml").write_text("<annotation></annotation>")
    if not message:
        opened(tmp_path, boxes=boxes)
        return
    with pytest.raises(UsageError, match=message):
        opened(tmp_path, boxes=boxes)


def test_the_masks_of_an_image_are_one_record(tmp_path):
    text = "ImageId,ClassId,EncodedPixels\n1.jpg,1,1 3 10 5\n2.jpg,1,\n1.jpg,4,20 2\n"
    (tmp_path / "t.csv").write_text(text)
    columns = "image=ImageId,segmentation=EncodedPixels,labels=ClassId"
    _, tables = opened(tmp_path / "t.csv", schema="segmentation", columns=columns)
    what = "has a row per mask; the rows with the same 'ImageId' are one record"
    assert tables.findings[-1].text == f"{tmp_path / 't.csv'}: {what}"
    (file,) = tables.files
    rows = [row.values for row in FORMATS["csv"].rows(file, Projection()) if isinstance(row, Row)]
    assert sorted((r["ImageId"], r["ClassId"], r["EncodedPixels"]) for r in rows) == [
        ("1.jpg", ["1", "4"], ["1 3 10 5", "20 2"]),
        ("2.jpg", ["1"], [""]),
    ]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (RACCOON, {"key_column": "width", **STATED}),
        (RACCOON, {"schema": "tabular"}),
        (OPEN_IMAGES, {"schema": "tabular"}),
        (WHEAT, {"schema": "tabular"}),
        (WHEAT, {"columns": "image=image_id,label=source"}),
        ("image,label,xmin,ymin,xmax,ymax\n1.jpg,cat,1,2,3,4\n2.jpg,dog,1,2,3,4\n", {}),
        ("image,labels,xmin,ymin,xmax,ymax\n1.jpg,[],[],[],[],[]\n", STATED),
    ],
)
def test_other_tables_keep_their_rows(text, options, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    _, tables = opened(tmp_path / "t.csv", **options)
    assert not any(file.grouped for file in tables.files)


SAME = "xmin=xmin,ymin=ymin,xmax=xmax,ymax=ymax"


@pytest.mark.parametrize(
    ("table", "columns", "remedy"),
    [
        ("image,label,xmin,ymin,xmax,ymax\n1.jpg,cat,1,2,3,4\n", "", SAME),
        (
            "Path,ClassId,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2\n1.png,7,1,2,3,4\n",
            "image=Path,label=ClassId",
            "xmin=Roi.X1,ymin=Roi.Y1,xmax=Roi.X2,ymax=Roi.Y2",
        ),
        ("image,label,bbox\n1.jpg,cat,1 2 3 4\n", "", "bbox=bbox"),
        ('image,label,boxes\n1.jpg,cat,"[[1, 2, 3, 4]]"\n', "", "bbox=boxes"),
        ("image,label,boxes\n1.jpg,cat,2\n", "", ""),
        ("image,label,xmin,ymin,xmax\n1.jpg,cat,1,2,3\n", "", ""),
        ("image,label,xmin,ymin,xmax,ymax\n1.jpg,cat,a,b,c,d\n", "", ""),
    ],
)
def test_boxes_that_a_table_of_labels_has_are_a_warning(table, columns, remedy, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(table)
    mapped = {"columns": columns} if columns else {}
    config, tables = opened(path, **mapped)
    assert config.dataset_schema.name == "image_classification"
    found = [(one.severity, one.hint) for one in tables.findings if one.kind == "unread_boxes"]
    images = "image=Path,labels=ClassId" if columns else "image=image,labels=label"
    remedy = remedy and f"{images},{remedy}"
    hint = f"set --schema object_detection --columns {remedy}, or --schema image_classification"
    assert found == ([("warning", hint)] if remedy else [])
    _, stated = opened(path, schema="image_classification", **mapped)
    assert stated.findings == ()
    if remedy:
        config, tables = opened(path, schema="object_detection", columns=remedy, boxes="order=xyxy")
        resolve_sources(config.dataset_schema, tables.columns, config, "t.csv")
        is_list = "[" in table  # with a row per image
        assert tables.files[0].grouped == ("" if is_list else config.column("image"))


@pytest.mark.parametrize(("columns", "is_noted"), [({}, True), ({"is_crowd": "IsGroupOf"}, False)])
def test_boxes_of_groups_are_noted_unless_they_are_marked(columns, is_noted, tmp_path):
    path = tmp_path / "t.csv"
    header, *rows = OPEN_IMAGES.splitlines()
    path.write_text("\n".join([f"{header},IsGroupOf", *(f"{row},1" for row in rows)]))
    _, tables = opened(path, columns=columns)
    note = "boxes of groups: not marked; --columns is_crowd=IsGroupOf marks them"
    assert (note in tables.recognized) == is_noted
