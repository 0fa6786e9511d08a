"""CVAT for images 1.1: exact rows of shapes, subsets, and what is skipped or rejected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from pycocotools import mask as coco

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import OTHER_SHAPES, ROTATED, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Projection
from recordmill.transforms.functional.sources.tree import NO_IMAGE, NO_SPLIT, UNNAMED
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS, unnamed_images
from recordmill.transforms.inputs.recognize import sources_of
from tests.shots import LABELS, Form, Shot, write_images
from tests.unit.transforms.functional.sources.test_annotated import put

META = (
    "<meta><{0}><labels><label><name>dog</name></label><label><name>cat</name></label>"
    "<label><name>nose</name><parent>skeleton</parent></label></labels></{0}></meta>"
)


def document(*images, kind="task"):
    head = f"<annotations>\n  <version>1.1</version>{META.format(kind)}"
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}\n{chr(10).join(images)}\n</annotations>'


def image(name, *shapes, more=""):
    return f'<image id="0" name="{name}" {more} width="6" height="4">{"".join(shapes)}</image>'


def read(folder, projection=None, files=1):
    found = sources_of(str(folder), "auto", True)
    (file,) = found.files
    known = FORMATS["cvat"]
    parts = [*known.parts(file)]
    read = [
        known.read(p, projection or Projection()) if isinstance(p, Part) else [p] for p in parts
    ]
    others = unnamed_images(found.files, ("image",), lambda row: [row.image.uri])
    return known.probe(file), [*chain(*read), *others]


def rows_of(found):
    return {row.values["image"]: row for row in found if isinstance(row, Row)}


def test_shapes_of_a_task(tmp_path):
    shapes = (
        '<box label="cat" xtl="1" ytl="1.5" xbr="3" ybr="3.25" z_order="0" group_id="7">'
        '<attribute name="hue">red</attribute><attribute name="odd">false</attribute></box>',
        '<polygon label="dog" group_id="7" points="0.00,0.50;5.00,0.50;2.50,4.00"/>',
        '<mask label="cat" rle="1, 2, 1" left="1" top="2" width="2" height="2"/>',
        '<polyline label="cat" points="1,1;2,2"/><points label="cat" points="1,1"/>',
        '<tag label="dog"/>',
    )
    files = {"images/a/1.png": "", "images/2.png": "", "images/3.png": "", "readme.md": "x"}
    images = (image("a/1.png", *shapes), image("2.png"))
    put(tmp_path, {**files, "annotations.xml": document(*images)})
    probe, found = read(tmp_path, Projection(("image", "labels", "segmentation", "xmin")))
    assert probe.classes["labels"].names == ((0, "dog"), (1, "cat"))
    assert probe.splits == ()
    assert probe.preset == "object_detection"
    (one, two) = rows_of(found).values()
    assert one.image.uri == f"{tmp_path}/images/a/1.png"
    assert one.source == f"{tmp_path}/annotations.xml:4"
    assert two.values == {"image": "2.png", "labels": [], "segmentation": [], "xmin": []}
    *polygons, mask = one.values.pop("segmentation")
    assert one.values == {"image": "a/1.png", "labels": ["cat", "dog", "cat"], "xmin": [1, 0, 1]}
    assert polygons == [[[1, 1.5, 3, 1.5, 3, 3.25, 1, 3.25]], [[0, 0.5, 5, 0.5, 2.5, 4]]]
    pixels = coco.decode({**mask, "counts": mask["counts"].encode()})
    assert pixels.tolist() == [[0] * 6, [0] * 6, [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert [one for one in found if isinstance(one, SkippedInput)] == [
        SkippedInput.named(
            OTHER_SHAPES,
            [f"a/1.png: {s}" for s in ("polyline", "points", "tag", "attribute hue", "group 7")],
        ),
        SkippedInput.named(NO_IMAGE, ["readme.md"]),
        SkippedInput.named(UNNAMED, ["images/3.png"]),
    ]


def test_all_values_of_an_image(tmp_path):
    box = '<box label="cat" xtl="1" ytl="1" xbr="3" ybr="4"/><tag label="dog"/>'
    put(tmp_path, {"images/1.png": "", "annotations.xml": document(image("1.png", box))})
    _, (row, *_) = read(tmp_path)
    assert row.values == {
        **{"image": "1.png", "id": "1", "split": None, "width": 6, "height": 4, "label": "dog"},
        **{"xmin": [1.0], "ymin": [1.0], "xmax": [3.0], "ymax": [4.0], "box_units": None},
        **{"labels": ["cat"], "segmentation": [[[1.0, 1.0, 3.0, 1.0, 3.0, 4.0, 1.0, 4.0]]]},
    }


def test_a_rotated_box_is_the_upright_box_around_it(tmp_path):
    # CVAT turns around the center: a box of 4 x 2 by 90 degrees is one of 2 x 4.
    shapes = [
        f'<box label="cat" xtl="0" ytl="0" xbr="4" ybr="2" rotation="{r}"/>' for r in (90, 30)
    ]
    put(tmp_path, {"images/1.png": "", "annotations.xml": document(image("1.png", *shapes))})
    _, found = read(tmp_path)
    values = rows_of(found)["1.png"].values
    width = 4 * math.cos(math.pi / 6) + 2 * math.sin(math.pi / 6)
    height = 4 * math.sin(math.pi / 6) + 2 * math.cos(math.pi / 6)
    boxes = list(zip(*(values[s] for s in ("xmin", "ymin", "xmax", "ymax")), strict=True))
    assert boxes[0] == pytest.approx((1, -1, 3, 3))
    assert boxes[1] == pytest.approx((2 - width / 2, 1 - height / 2, 2 + width / 2, 1 + height / 2))
    assert SkippedInput.named(ROTATED, ["1.png"]) in found


def test_subsets_of_a_project_are_splits(tmp_path):
    images = (
        image("1.png", more='subset="Train"'),
        image("1.png", more='subset="Validation"'),
        image("frame_000000", more='subset="Train"'),
        image("4.png", more='subset="default"'),
    )
    names = ("Train/1.png", "Validation/1.png", "Train/frame_000000.PNG", "default/4.png")
    files = {f"images/{name}": "" for name in names}
    put(tmp_path, {**files, "annotations.xml": document(*images, kind="project")})
    probe, found = read(tmp_path, Projection(("image", "split")))
    assert probe.splits == ("Train", "Validation")
    assert {name: row.values["split"] for name, row in rows_of(found).items()} == {
        "Train/1.png": "Train",
        "Validation/1.png": "Validation",
        "Train/frame_000000.PNG": "Train",
    }
    assert [one for one in found if isinstance(one, SkippedInput)] == [
        SkippedInput.named(NO_SPLIT, ["4.png"])
    ]


@pytest.mark.parametrize(
    "files",
    [("train/annotations.xml", "test/annotations.xml"), ("train.xml", "test.xml")],
    ids=["in folders", "by name"],
)
def test_files_of_several_tasks_are_splits(tmp_path, files):
    for file, name in zip(files, ("1.png", "2.png"), strict=True):
        folder = file.rpartition("/")[0]
        put(tmp_path / folder, {f"images/{name}": ""})
        put(tmp_path, {file: document(image(name))})
    probe, found = read(tmp_path, Projection(("image", "split")))
    assert probe.splits == ("train", "test")
    assert sorted(row.values["split"] for row in rows_of(found).values()) == ["test", "train"]
    assert all(isinstance(one, Row) for one in found)
    assert len({row.values["image"] for row in found}) == 2


def test_tags_are_labels_of_images(tmp_path):
    images = (image("1.png", '<tag label="cat"/>'), image("2.png", '<tag label="dog"/>'))
    names = {"images/1.png": "", "images/2.png": ""}
    put(tmp_path, {**names, "annotations.xml": document(*images)})
    probe, found = read(tmp_path, Projection(("image", "label")))
    assert probe.preset == ""
    assert [row.values["label"] for row in found] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("shape", "reason", "detail"),
    [
        ('<box label="a" xtl="1" ytl="1" xbr="x" ybr="2"/>', Reason.BAD_BOX, "box 1: xbr:"),
        ('<box xtl="1" ytl="1" xbr="2" ybr="2"/>', Reason.MALFORMED_ROW, "box 1: has no label"),
        ('<polygon label="a" points="1,1;2,2"/>', Reason.BAD_BOX, "polygon 1: expected points"),
        ('<mask label="a" rle="1" left="0" top="0"/>', Reason.BAD_BOX, "mask 1: expected left"),
        (
            '<mask label="a" rle="1, 9" left="0" top="0" width="2" height="2"/>',
            Reason.WRONG_TYPE,
            "mask 1: expected run lengths of 2 x 2 pixels",
        ),
    ],
)
def test_an_invalid_shape_rejects_its_image(tmp_path, shape, reason, detail):
    put(tmp_path, {"images/1.png": "", "annotations.xml": document(image("1.png", shape))})
    _, (reject, *_) = read(tmp_path)
    assert isinstance(reject, Reject)
    assert (reject.key, reject.source) == ("1.png", f"{tmp_path}/annotations.xml:4")
    assert reject.reason is reason
    assert reject.detail.startswith(f"1.png: {detail}")


def test_a_truncated_file_loses_its_other_images(tmp_path):
    text = document(image("1.png"), image("2.png"))
    put(tmp_path, {"images/1.png": "", "annotations.xml": text[: text.index("2.png") + 2]})
    _, (row, reject) = read(tmp_path)
    assert row.values["image"] == "1.png"
    assert (reject.reason, reject.source) == (Reason.LOST_ROWS, f"{tmp_path}/annotations.xml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document('<track id="0" label="cat"/>'), "has tracks of a video. Export it as CVAT for"),
        (document('<track id="0" label="cat"/>', image("1.png")), "has tracks of a video. Export"),
        (document(), "has no <image>"),
        ("<annotations><meta>", "is not a valid XML file: no element found"),
    ],
)
def test_files_without_images_stop(tmp_path, text, message):
    put(tmp_path, {"images/1.png": "", "annotations.xml": text})
    with pytest.raises(UsageError, match=message):
        read(tmp_path)


def test_an_xml_file_of_another_tool_stops(tmp_path):
    put(tmp_path, {"1.xml": "<annotation/>"})
    with pytest.raises(
        UsageError, match=r"expected annotations of CVAT\. For Pascal VOC, name the"
    ):
        sources_of(str(tmp_path / "1.xml"), "auto", True)
    put(tmp_path, {"1.xml": document(image("1.png")), "1.png": ""})
    assert sources_of(str(tmp_path / "1.xml"), "auto", True).files[0].path == str(tmp_path)


def test_names_of_another_machine_are_found(tmp_path):
    put(tmp_path, {"1.png": "", "annotations.xml": document(image(r"C:\data\1.png"))})
    _, found = read(tmp_path)
    assert [row.image.uri for row in rows_of(found).values()] == [f"{tmp_path}/1.png"]
    assert FileTree(str(tmp_path)).has("1.png")


def test_each_image_is_looked_for_once(tmp_path, monkeypatch):
    names = ("a/1.png", "2.png")
    put(tmp_path, {f"images/{name}": "" for name in names})
    put(tmp_path, {"annotations.xml": document(*map(image, names))})
    asked, has = [], FileTree.has

    def counting(tree, name):
        asked.append(name)
        return has(tree, name)

    monkeypatch.setattr(FileTree, "has", counting)
    _, found = read(tmp_path)
    assert [row.image.uri for row in rows_of(found).values()] == [
        f"{tmp_path}/images/{name}" for name in names
    ]
    # By the reading of the rows, and of the images that they name.
    assert [name for name in asked if name.endswith(".png")] == [f"images/{n}" for n in names] * 2


def test_with_an_image_root_no_image_in_the_folder_lacks_an_annotation(tmp_path):
    put(
        tmp_path,
        {"images/1.png": "", "readme.md": "x", "annotations.xml": document(image("1.png"))},
    )
    _, (row, *others) = read(tmp_path, Projection(image_root="elsewhere"))
    assert (row.values["image"], row.image) == ("1.png", None)
    assert others == [SkippedInput.named(NO_IMAGE, ["readme.md"])]


def _cvat(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "cvat" / "images", given)
    labels = "".join(f"<label><name>{label}</name></label>" for label in LABELS)
    images = [
        f'<image id="{i}" name="{shot.name}" width="{shot.width}" height="{shot.height}">'
        + "".join(
            f'<box label="{label}" xtl="{x1}" ytl="{y1}" xbr="{x2}" ybr="{y2}"/>'
            if k % 2
            else f'<polygon label="{label}" points="{x1},{y1};{x2},{y1};{x1},{y2}"/>'
            for k, (label, x1, y1, x2, y2) in enumerate(shot.boxes)
        )
        + "</image>"
        for i, shot in enumerate(given)
    ]
    meta = f"<meta><task><labels>{labels}</labels></task></meta>"
    text = f"<annotations><version>1.1</version>{meta}{''.join(images)}</annotations>"
    (root / "cvat" / "annotations.xml").write_text(text, encoding="utf-8")
    return root / "cvat"


FORMS = {"cvat": Form(_cvat)}
