"""JSON of LabelMe: exact columns, skipped shapes, and rejects for invalid annotations."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import OTHER_SHAPES, UNANNOTATED, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import SPLIT, Projection
from recordmill.transforms.functional.sources import labelme
from recordmill.transforms.functional.sources.tree import NO_IMAGE, NO_SPLIT
from recordmill.transforms.inputs.file_tree import FileTree
from tests.shots import Form, Shot, write_images


def shape(label, kind, *points):
    return {"label": label, "points": [*map(list, points)], "shape_type": kind, "flags": {}}


def document(*shapes, image="1 새.jpg", **fields):
    values = {"version": "5.4.1", "flags": {}, "shapes": shapes, "imagePath": image}
    values |= {"imageData": None, "imageHeight": 40, "imageWidth": 30}
    return json.dumps(values | fields).encode()


RECTANGLE = shape("cat", "rectangle", (10, 2), (1, 12.5))
POLYGON = shape("dog", "polygon", (3, 9), (5, 1), (4, 4))


def test_a_json_file_gives_its_columns():
    assert labelme._parse(document(RECTANGLE, POLYGON)) == {
        "image": "1 새.jpg",
        "height": 40,
        "width": 30,
        "xmin": [1.0, 3.0],
        "ymin": [2.0, 1.0],
        "xmax": [10.0, 5.0],
        "ymax": [12.5, 9.0],
        "box_units": None,
        "labels": ["cat", "dog"],
        "segmentation": [
            [[1.0, 2.0, 10.0, 2.0, 10.0, 12.5, 1.0, 12.5]],
            [[3.0, 9.0, 5.0, 1.0, 4.0, 4.0]],
        ],
    }


def test_other_shapes_are_collected():
    others = []
    shapes = (shape("a", "circle", (1, 1), (2, 2)), POLYGON, {**POLYGON, "shape_type": None})
    assert labelme._parse(document(*shapes), others=others)["labels"] == ["dog"]
    assert others == ["circle", "None"]


def test_flags_of_the_image_and_its_shapes_are_collected():
    others = []
    flags = {"cat": True, "dog": False, "x": 1}
    assert labelme._parse(document(flags=flags), others=others)["labels"] == []
    labelme._parse(document(flags=None), others=others)
    labelme._parse(document(flags=flags))
    assert others == ["flag 'cat'"]
    labelme._parse(document({**POLYGON, "flags": {"hidden": True}}, RECTANGLE), others=others)
    assert others == ["flag 'cat'", "flag 'hidden'"]


def test_groups_and_further_fields_are_collected():
    others = []
    shapes = ({**POLYGON, "group_id": 1, "description": "old"}, {**RECTANGLE, "group_id": 1})
    single = {**POLYGON, "group_id": 2, "description": "", "difficult": False, "attributes": {}}
    assert labelme._parse(document(*shapes, single, single | {"group_id": None}), others=others)
    assert others == ["attribute description", "group 1"]


def test_shapes_of_old_versions_are_polygons():
    old = {"label": "dog", "points": POLYGON["points"]}
    assert labelme._parse(document(old))["xmax"] == [5.0]


def test_sizes_that_are_no_numbers_are_missing():
    found = labelme._parse(document(imageHeight=True, imageWidth="30"))
    assert (found["height"], found["width"], found["labels"]) == (None, None, [])


def test_a_shape_without_a_valid_box_may_lose_its_box():
    found = labelme._parse(document(POLYGON, shape("cat", "polygon", (1, 1))), drops_boxes=True)
    assert found["xmin"][0] == 3.0
    assert math.isnan(found["xmin"][1])
    assert found["labels"] == ["dog", "cat"]
    assert found["segmentation"][1] == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.MALFORMED_ROW),
        (b"\xff", Reason.MALFORMED_ROW),
        (b"[]", Reason.MALFORMED_ROW),
        (b'{"shapes": {}}', Reason.MALFORMED_ROW),
        (b"[" * 100_000, Reason.MALFORMED_ROW),
        (b'{"shapes": [], "shapes": []}', Reason.MALFORMED_ROW),
        (document(1), Reason.MALFORMED_ROW),
        (document(image=""), Reason.MALFORMED_ROW),
        (document(image="\ud800"), Reason.MALFORMED_ROW),
        (document({**POLYGON, "label": 1}), Reason.MALFORMED_ROW),
        (document(shape("cat", "rectangle", (1, 1))), Reason.BAD_BOX),
        (document(shape("cat", "polygon", (1, 1), (2, 2))), Reason.BAD_BOX),
        (document(shape("cat", "rectangle", (1, 1), (2,))), Reason.BAD_BOX),
        (document(shape("cat", "rectangle", (1, 1), (2, None))), Reason.BAD_BOX),
        (document({"label": "cat"}), Reason.BAD_BOX),
    ],
)
def test_what_is_no_annotation_is_a_reject(data, reason):
    with pytest.raises(RecordError) as raised:
        labelme._parse(data)
    assert raised.value.reason is reason
    assert raised.value.detail


def tree_of(tmp_path, files):
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return FileTree(str(tmp_path))


def rows_of(tree, projection):
    (file,) = labelme.sources_in(tree).files
    found = [*labelme.parts(tree, file)]
    parts = [part for part in found if not isinstance(part, SkippedInput)]
    skipped = [part for part in found if isinstance(part, SkippedInput)]
    return [row for part in parts for row in labelme.read(tree, part, projection)], skipped


def test_a_folder_is_recognized_by_a_json_file_beside_an_image(tmp_path):
    tree = tree_of(tmp_path, {"a/1.jpg": b"", "a/1.json": document()})
    assert labelme.recognize_folder(tree).text == "LabelMe (a/1.json, …)"


@pytest.mark.parametrize(
    "files",
    [
        {"a/1.jpg": b"", "b/1.json": document()},
        {"1.jpg": b"", "1.json": b'{"shapes": []}'},
        {"1.jpg": b"", "1.json": b'{"version": 1, "images": []}'},
    ],
)
def test_other_folders_are_not(tmp_path, files):
    assert labelme.recognize_folder(tree_of(tmp_path, files)) is None


def test_a_folder_without_json_is_an_error(tmp_path):
    tree = tree_of(tmp_path, {"1.jpg": b""})
    (file,) = labelme.sources_in(tree).files
    with pytest.raises(UsageError, match="has no JSON file"):
        labelme.probe(tree, file)


def test_what_is_not_read_is_skipped(tmp_path):
    circle = shape("a", "circle", (1, 1), (2, 2))
    files = {"a/1.jpg": b"", "a/1.json": document(circle, image="1.jpg")}
    files |= {"a/2.jpg": b"", "a/x.md": b"", "a/3.json": b"{}"}
    found, skipped = rows_of(tree_of(tmp_path, files), Projection())
    (reject,) = (each for each in found if isinstance(each, Reject))
    row, shapes = (each for each in found if each != reject)
    assert isinstance(row, Row)
    assert row.values["image"] == "a/1.jpg"
    assert shapes == SkippedInput(OTHER_SHAPES, 1, ("a/1.json: circle",))
    assert reject.reason is Reason.MALFORMED_ROW
    assert skipped == [
        SkippedInput(NO_IMAGE, 1, ("a/x.md",)),
        SkippedInput(UNANNOTATED, 1, ("a/2.jpg",)),
    ]


def test_folders_are_splits(tmp_path):
    files = {f"{name}1.json": document(image="1.jpg") for name in ("train/", "val/", "")}
    tree = tree_of(tmp_path, files)
    (file,) = labelme.sources_in(tree).files
    assert labelme.probe(tree, file).splits == ("train", "val")
    found, _ = rows_of(tree, Projection())
    splits = [row.values[SPLIT] for row in found if isinstance(row, Row)]
    assert sorted(splits) == ["train", "val"]
    assert SkippedInput(NO_SPLIT, 1, ("1.json",)) in found


def test_paths_of_windows_are_read(tmp_path):
    tree = tree_of(tmp_path, {"json/1.json": document(image="..\\images\\1.jpg")})
    ((row,), _) = rows_of(tree, Projection())
    assert row.values["image"] == "images/1.jpg"
    assert row.image.uri.endswith("/images/1.jpg")


def _labelme(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "labelme", given)
    for shot in given:
        shapes = [
            # Corners in any order; the box around a polygon.
            {"label": label, "points": [[x2, y1], [x1, y2]], "shape_type": "rectangle"}
            if k % 2
            else {"label": label, "points": [[x1, y1], [x2, y1], [x1, y2]], "shape_type": "polygon"}
            for k, (label, x1, y1, x2, y2) in enumerate(shot.boxes)
        ]
        document = {"version": "5.4.1", "shapes": shapes, "imagePath": shot.name}
        document |= {"imageData": None, "imageHeight": shot.height, "imageWidth": shot.width}
        (root / "labelme" / f"{shot.stem}.json").write_text(json.dumps(document))
    return root / "labelme"


FORMS = {"labelme": Form(_labelme)}
