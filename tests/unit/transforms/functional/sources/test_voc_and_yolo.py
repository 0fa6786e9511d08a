"""Pascal VOC XML and YOLO text: exact columns, and rejects for invalid annotations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import lines
from recordmill.schemas.records import (
    KEYPOINTS,
    ORIENTED,
    UNANNOTATED,
    UNMATCHED_FILES,
    Row,
    SkippedInput,
)
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.sources import voc, yolo
from recordmill.transforms.functional.sources.annotated import UNLISTED
from recordmill.transforms.functional.sources.tree import NO_SPLIT, SEVERAL_SPLITS
from recordmill.transforms.functional.sources.yolo import Classes
from recordmill.transforms.functional.values.documents import parse_xml
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS
from tests.shots import LABELS, Form, Shot, write_images

OBJECT = (
    "<object><name>cat</name><difficult>{difficult}</difficult><truncated>1</truncated>"
    "<bndbox><xmin>{xmin}</xmin><ymin>2</ymin><xmax>10</xmax><ymax>12.5</ymax></bndbox></object>"
)


def annotation(*objects, filename="1 새.jpg"):
    size = "<size><width>30</width><height>40</height><depth>3</depth></size>"
    name = f"<filename>{filename}</filename>"
    return f"<annotation><folder>VOC</folder>{name}{size}{''.join(objects)}</annotation>".encode()


def test_an_xml_file_gives_its_columns():
    one, two = OBJECT.format(difficult=0, xmin=1), OBJECT.format(difficult=1, xmin=" 3.5 ")
    assert voc._parse(annotation(one, two)) == {
        "image": "1 새.jpg",
        "height": 40,
        "width": 30,
        "xmin": [1.0, 3.5],
        "ymin": [2.0, 2.0],
        "xmax": [10.0, 10.0],
        "ymax": [12.5, 12.5],
        "box_units": None,
        "labels": ["cat", "cat"],
        "difficult": [0, 1],
        "truncated": [1, 1],
    }


def test_a_image_without_objects_has_empty_lists():
    found = voc._parse(annotation())
    assert (found["labels"], found["xmin"], found["difficult"]) == ([], [], [])


def test_an_object_has_one_box():
    two = OBJECT.format(difficult=0, xmin=1).replace("</object>", "<bndbox/></object>")
    for data, number in ((two, 2), ("<object><name>cat</name></object>", 0)):
        with pytest.raises(
            RecordError, match=rf"^bad_box: object 1: expected one <bndbox>, got {number}$"
        ):
            voc._parse(annotation(data))


@pytest.mark.parametrize(
    "other",
    ["<object><name>cat</name></object>", OBJECT.format(difficult=0, xmin="x")],
)
def test_an_object_without_a_valid_box_may_lose_its_box(other):
    found = voc._parse(annotation(OBJECT.format(difficult=0, xmin=1), other), drops_boxes=True)
    assert found["xmin"][0] == 1.0
    assert math.isnan(found["xmin"][1])
    assert found["labels"] == ["cat", "cat"]


def test_attributes_and_parts_are_collected_and_rotations_are_read():
    turned, parted = OBJECT.format(difficult=0, xmin=4), OBJECT.format(difficult=0, xmin=1)
    pairs = (("rotation", "90.0"), ("hue", "red"), ("occluded", "False"))
    attributes = "".join(
        f"<attribute><name>{name}</name><value>{value}</value></attribute>" for name, value in pairs
    )
    turned = turned.replace("</object>", f"<attributes>{attributes}</attributes></object>")
    parted = parted.replace("</object>", "<part><name>head</name></part></object>")
    others = []
    found = voc._parse(annotation(turned, parted), others=others)
    # A box of 6 x 10.5 around (7, 7.25) becomes one of 10.5 x 6.
    boxes = [[found[side][i] for side in ("xmin", "ymin", "xmax", "ymax")] for i in (0, 1)]
    assert boxes == [pytest.approx([1.75, 4.25, 12.25, 10.25]), [1.0, 2.0, 10.0, 12.5]]
    assert others == ["part", "rotated box, read as the upright box around it", "attribute hue"]


def test_deleted_objects_are_left_out_and_counted():
    kept, removed = (
        OBJECT.format(difficult=0, xmin=x).replace("<name>", f"<deleted> {flag} </deleted><name>")
        for x, flag in ((1, 0), (2, 1))
    )
    found = voc._parse(annotation(removed, kept), others=(others := []))
    assert (found["xmin"], found["difficult"], found["labels"]) == ([1.0], [0], ["cat"])
    assert others == ["deleted object"]


BOMB = b"""<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;&x;&x;">]>
<annotation><filename>&y;</filename></annotation>"""
OUTSIDE = b"""<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<annotation><filename>&x;</filename></annotation>"""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.MALFORMED_ROW),
        (b"<annotation>", Reason.MALFORMED_ROW),
        (BOMB, Reason.MALFORMED_ROW),
        (OUTSIDE, Reason.MALFORMED_ROW),
        (b"<!DOCTYPE annotation>" + annotation(), Reason.MALFORMED_ROW),
        (b"<a>" * 100_000, Reason.MALFORMED_ROW),
        (b"<a>" * 65 + b"</a>" * 65, Reason.MALFORMED_ROW),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', Reason.MALFORMED_ROW),
        (annotation("<object><name>cat</name></object>"), Reason.BAD_BOX),
        (annotation(OBJECT.format(difficult=0, xmin="x")), Reason.BAD_BOX),
        (annotation(OBJECT.format(difficult=0, xmin="nan")), Reason.BAD_BOX),
        (annotation("<object><bndbox/></object>"), Reason.BAD_BOX),
    ],
)
def test_what_is_no_annotation_is_a_reject(data, reason):
    with pytest.raises(RecordError) as raised:
        voc._parse(data)
    assert raised.value.reason is reason
    assert raised.value.detail


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_text_is_read_as_by_another_parser(text):
    found = ElementTree.Element("annotation")
    ElementTree.SubElement(found, "filename").text = text
    data = ElementTree.tostring(found, "utf-16")
    assert parse_xml(data)[0].text == ElementTree.fromstring(data)[0].text  # noqa: S314


CLASSES = Classes({0: "cat", 3: "dog"})


def test_a_label_file_gives_boxes_by_their_corners():
    found = yolo._parse("0 0.5 0.25 0.25 0.5\n\n  3\t.5 .5 1 1\r\n", CLASSES)
    assert found == {
        "xmin": [0.375, 0.0],
        "ymin": [0.0, 0.0],
        "xmax": [0.625, 1.0],
        "ymax": [0.5, 1.0],
        "box_units": "normalized",
        "labels": ["cat", "dog"],
        "segmentation": [[], []],
        "corners": [[], []],
    }


@pytest.mark.parametrize("id_", ["3", "3.0", "3.", "'3'", '"3"', "03"])
def test_ids_of_other_tools_are_read(id_):
    assert yolo._parse(f"{id_} .5 .5 1 1", CLASSES)["labels"] == ["dog"]


@pytest.mark.parametrize(
    ("text", "keypoints", "expected"),
    [
        ("0 .5 .5 1 1\n", None, ""),
        ("0 .5 .5 1 1 .1 .1 2\n\n0 .5 .5 1 1", (1, 3), KEYPOINTS),
        ("0 .5 .5 1 1", (1, 3), ""),
        ("0 0 0 1 0 1 1 0 1\n", None, ORIENTED),
        ("0 0 0 1 0 1 1 0 1\n0 0 0 1 0 1 1", None, ""),
        ("", None, ""),
    ],
)
def test_what_the_schema_leaves_out_is_counted(text, keypoints, expected):
    classes = CLASSES._replace(keypoints=keypoints)
    assert yolo._left_out(text, classes, Projection(("image", "xmin"))) == expected
    assert yolo._left_out(text, classes, Projection(("corners", "keypoints"))) == ""


def test_an_outline_gives_the_box_around_it():
    found = yolo._parse("3 0.5 0.1 0.9 0.3 0.25 0.75", CLASSES)
    assert [found[c] for c in ("xmin", "ymin", "xmax", "ymax")] == [[0.25], [0.1], [0.9], [0.75]]
    assert found["segmentation"] == [[[0.5, 0.1, 0.9, 0.3, 0.25, 0.75]]]


@pytest.mark.parametrize(
    ("shape", "points", "expected"),
    [
        ((2, 3), "0.1 0.2 2 0 0 0", [0.1, 0.2, 2, 0, 0, 0]),
        ((3, 2), "0.1 0.2 0 0 -1 0.5", [0.1, 0.2, 2, 0, 0, 0, 0, 0, 0]),
        ((2, 2), "", [0] * 6),
    ],
)
def test_the_keypoints_of_a_pose_follow_its_box(shape, points, expected):
    classes = CLASSES._replace(keypoints=shape)
    found = yolo._parse(f"0 0.5 0.5 0.5 0.5 {points}", classes)
    assert (found["xmin"], found["xmax"], found["segmentation"]) == ([0.25], [0.75], [[]])
    assert (found["keypoints"], found["keypoint_names"]) == ([expected], None)


@pytest.mark.parametrize("line", ["0 .5 .5 1 1 .1 .1", "0 .5 .5 1", "0 .5 .5 1 1 .1 .1 2 .1"])
def test_other_numbers_of_keypoints_are_rejected(line):
    with pytest.raises(
        RecordError, match="line 1: expected a class, 4 numbers and 1 keypoints of 3"
    ):
        yolo._parse(line, CLASSES._replace(keypoints=(1, 3)))


@pytest.mark.parametrize(
    ("text", "box"),
    [
        pytest.param("0 0 0 1 0 1 .5 1 1 0 1", (0, 0, 1, 1), id="whole image, as keypoints"),
        pytest.param("0 .5 .5 .2 .2 .9 .9 1 .6 .6 1", (0.2, 0.2, 1, 1), id="far from the box"),
        pytest.param("0 .2 .5 .8 .5 .5 1", (0.2, 0.5, 0.8, 1), id="triangle, as a track"),
        pytest.param(
            "0 .5 .5 .2 .2 .9 1\n0 .1 .1 .2 .1 .2 .2 .1 .2", (0.2, 0.2, 0.9, 1), id="with another"
        ),
    ],
)
def test_outlines_at_the_border_are_no_boxes_with_more(text, box):
    values = yolo._parse(text, CLASSES)
    sides = ("xmin", "ymin", "xmax", "ymax")
    assert tuple(values[side][0] for side in sides) == box
    assert values["segmentation"][0] == [[float(n) for n in text.splitlines()[0].split()[1:]]]


def test_an_outline_of_four_points_has_the_corners_of_an_oriented_box():
    found = yolo._parse("0 .1 .2 .3 .1 .4 .3 .2 .4\n3 .5 .5 1 1", CLASSES)
    assert found["corners"] == [[0.1, 0.2, 0.3, 0.1, 0.4, 0.3, 0.2, 0.4], []]
    assert [found[side][0] for side in ("xmin", "ymin", "xmax", "ymax")] == [0.1, 0.1, 0.4, 0.4]


@given(*[st.floats(0, 1, width=32)] * 4)
def test_every_box_has_its_centre_and_size(x, y, width, height):
    found = yolo._parse(f"0 {x!r} {y!r} {width!r} {height!r}", CLASSES)
    (xmin,), (ymin,), (xmax,), (ymax,) = (found[c] for c in ("xmin", "ymin", "xmax", "ymax"))
    assert (xmin + xmax) / 2 == pytest.approx(x, abs=1e-12)
    assert (ymin + ymax) / 2 == pytest.approx(y, abs=1e-12)
    assert (xmax - xmin, ymax - ymin) == pytest.approx((width, height), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("0 0.5 0.5 0.5", Reason.MALFORMED_ROW, "line 1: expected a class and 4 numbers"),
        ("0", Reason.MALFORMED_ROW, "got 1 fields"),
        ("0 1 1 1 1\n0 1 1 1 1 1", Reason.MALFORMED_ROW, "line 2"),
        ("0 .5 .5 .2 .2 .9", Reason.MALFORMED_ROW, "got 6 fields; the confidence of a prediction"),
        (
            "0 0,5 0,5 1 1",
            Reason.MALFORMED_ROW,
            "line 1: expected numbers with a point, separated by",
        ),
        ("0,.5,.5,1,1", Reason.MALFORMED_ROW, "spaces, got a comma: '0,.5,.5,1,1'"),
        # Ultralytics' tracker writes a confidence and a track id after the box.
        ("0 .5 .5 .2 .2 .9 1", Reason.MALFORMED_ROW, "line 1: expected points from 0 to 1, got '0"),
        ("0 .5 .5 .2 .2 .9 17", Reason.MALFORMED_ROW, "confidence and a track id is not read"),
        # Two keypoints with visibilities, which might be an outline of five points.
        (
            "0 .5 .5 .2 .2 .4 .4 1 .6 .6 1",
            Reason.MALFORMED_ROW,
            "nor keypoints without kpt_shape in data.yaml",
        ),
        (
            "0 .5 .5 .2 .2 .4 .4 2 .6 .6 0",
            Reason.MALFORMED_ROW,
            "nor keypoints without kpt_shape in data.yaml",
        ),
        ("0 9 9 40 9 40 30 9 30", Reason.MALFORMED_ROW, "points from 0 to 1, got '0 9 9 40"),
        ("1.5 1 1 1 1", Reason.UNKNOWN_LABEL, "class id '1.5' is not one"),
        ("'0 1 1 1 1", Reason.UNKNOWN_LABEL, 'class id "\'0" is not one'),
        ("0 x 1 1 1", Reason.BAD_BOX, "line 1: expected a number, got 'x'"),
        ("0 nan 1 1 1", Reason.BAD_BOX, "got 'nan'"),
        ("1 1 1 1 1", Reason.UNKNOWN_LABEL, "class id '1' is not one of the 2 declared classes"),
        ("cat 1 1 1 1", Reason.UNKNOWN_LABEL, "'cat'"),
        ("-1 1 1 1 1", Reason.UNKNOWN_LABEL, "'-1'"),
    ],
)
def test_what_is_no_label_is_a_reject(text, reason, message):
    with pytest.raises(RecordError) as raised:
        yolo._parse(text, CLASSES)
    assert raised.value.reason is reason
    assert message in raised.value.detail


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"names: [cat, dog]", Classes({0: "cat", 1: "dog"})),
        (b"names: {0: cat, 5: 7}", Classes({0: "cat", 5: "7"})),
        (
            b"names: [007, 1.10, 1e3, 2020-01-02, 12:30]\nnc: 06",
            Classes(dict(enumerate(["007", "1.10", "1e3", "2020-01-02", "12:30"])), number=6),
        ),
        (
            b"names: [cat]\nkpt_shape: [2, 3]\nkpt_names: {0: [01, 1.0]}",
            Classes({0: "cat"}, keypoints=(2, 3), keypoint_names={0: ["01", "1.0"]}),
        ),
        (
            b"names: [cat]\nkpt_shape: [2, 3]\nkpt_names: {0: [nose, tail]}",
            Classes({0: "cat"}, keypoints=(2, 3), keypoint_names={0: ["nose", "tail"]}),
        ),
    ],
)
def test_classes_are_read_from_a_yaml_file(data, expected):
    assert yolo._parse_yaml(data, "data.yaml") == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"train: x",
        b"names: 3",
        b"names: [cat]\nkpt_shape: 17",
        b"names: [cat]\nkpt_shape: [17, 4]",
        b"names: [[1]]",
        b"a: [",
        b"[1]",
        b"names: [a, no]",
        b"names: [a, a]",
    ],
)
def test_a_yaml_file_without_names_is_rejected(data):
    with pytest.raises(UsageError, match=r"^data\.yaml(:\d+:\d+)?: "):
        yolo._parse_yaml(data, "data.yaml")


@pytest.mark.parametrize("names", ["[nose]", "[nose, tail, ear]"])
def test_each_keypoint_of_a_yaml_has_a_name_or_none_has(names):
    data = f"names: [cat, dog]\nkpt_shape: [2, 3]\nkpt_names: {{0: [], 1: {names}}}"
    with pytest.raises(UsageError) as raised:
        yolo._parse_yaml(data.encode(), "data.yaml")
    assert str(raised.value) == (
        "data.yaml: 'kpt_names': 1: expected 2 names, one per keypoint of kpt_shape, got "
        f"{names.count(',') + 1}. Correct either."
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"caf\xe9\n", "byte 3 is not valid UTF-8"), (b"a\nb\na\n", "class 'a' occurs twice")],
)
def test_a_list_of_classes_that_is_not_valid_is_a_message(data, problem):
    with pytest.raises(UsageError, match=rf"^classes\.txt: {problem}"):
        yolo._parse_classes(data, "classes.txt")


def put(root, files):
    """Writes files by name, and returns the folder."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return FileTree(str(root))


def splits_of(tree, format_, columns=("image", "split"), yaml=""):
    """Returns the split of each image, and the number of skipped annotations."""
    (file,) = (yolo.sources_in(tree, yaml) if format_ == "yolo" else voc.sources_in(tree)).files
    found, skipped = {}, 0
    for part in (one for one in FORMATS[format_].parts(file) if isinstance(one, Part)):
        for row in FORMATS[format_].read(part, Projection(columns)):
            if isinstance(row, Row):
                found[row.values["image"]] = row.values.get("split")
            elif row.kind in (UNLISTED, NO_SPLIT):
                skipped += row.number
    return found, skipped


def test_the_splits_of_voc_are_its_lists(tmp_path):
    xml = {f"Annotations/{i}.xml": annotation(filename=f"{i}.jpg") for i in range(5)}
    lists = {"train": "0\n", "valid": "1 1\n\n", "trainval": "0\n1\n2\n", "cat_train": "4 -1\n"}
    tree = put(tmp_path, {**xml, **{f"ImageSets/Main/{k}.txt": v for k, v in lists.items()}})
    assert voc.recognize_folder(tree)
    assert FORMATS["voc"].probe(TableFile(tree.root, "voc")).splits == ("train", "valid")
    expected = {"0.jpg": "train", "1.jpg": "valid", "2.jpg": "trainval"}
    assert splits_of(tree, "voc") == (expected, 2)
    everything = {f"{i}.jpg": None for i in range(5)}
    assert splits_of(tree, "voc", columns=("image",)) == (everything, 0)


@pytest.mark.parametrize(
    ("annotations", "bare"), [((0, 1), ["JPEGImages/2.jpg"]), ((0, 1, 2), []), ((7, 8), [])]
)
def test_images_without_an_annotation_are_counted(annotations, bare, tmp_path):
    xml = {f"Annotations/{i}.xml": annotation(filename=f"{i}.jpg") for i in annotations}
    images = {f"JPEGImages/{i}.jpg": b"" for i in range(3)}
    tree = put(tmp_path, {**xml, **images, "SegmentationClass/2.png": b""})
    found = voc.parts(tree, TableFile(tree.root, "voc"))
    skipped = [(p.kind, *p.names) for p in found if isinstance(p, SkippedInput)]
    masks = [("images in folders of masks", "SegmentationClass/2.png")] * (annotations != (7, 8))
    assert skipped == [*masks, *[(UNANNOTATED, *bare)] * bool(bare)]


def test_ids_in_several_lists_of_voc_are_counted(tmp_path):
    xml = {f"Annotations/{i}.xml": annotation(filename=f"{i}.jpg") for i in range(3)}
    lists = {"train": "0\n1\n", "val": "1\n2\n", "trainval": "0\n1\n2\n"}
    tree = put(tmp_path, {**xml, **{f"ImageSets/Main/{k}.txt": v for k, v in lists.items()}})
    (part,) = voc.parts(tree, TableFile(tree.root, "voc"))
    found = [part for part in voc.read(tree, part, Projection()) if isinstance(part, SkippedInput)]
    assert found == [SkippedInput(SEVERAL_SPLITS, 1, ("Annotations/1.xml",))]


YAML = "path: ../datasets/pets\ntrain: {train}\nval: {val}\nnames: [cat, dog]\n"
IMAGES = {"images/a/b.jpg": b"", "images/c/d.jpg": b""}


@pytest.mark.parametrize(
    ("train", "val", "expected"),
    [
        ("images/a", "./images/c/", {"images/a/b.jpg": "train", "images/c/d.jpg": "val"}),
        ("../images/a", "images", {"images/a/b.jpg": "train", "images/c/d.jpg": "val"}),
        ("[images/a, images/c]", "", {"images/a/b.jpg": "train", "images/c/d.jpg": "train"}),
        ("/old/pets/images/a", "", {"images/a/b.jpg": "train"}),
        (
            r"C:\old\pets\images\a",
            r".\images\c",
            {"images/a/b.jpg": "train", "images/c/d.jpg": "val"},
        ),
        (r"..\images\a", "", {"images/a/b.jpg": "train"}),
        ("windows.txt", "", {"images/a/b.jpg": "train"}),
        ("moved.txt", "", {"images/a/b.jpg": "train"}),
        ("one.txt", "two.txt", {"images/a/b.jpg": "train", "images/c/d.jpg": "val"}),
        (".", "", {"images/a/b.jpg": "train", "images/c/d.jpg": "train"}),
    ],
)
def test_the_splits_of_yolo_are_those_of_its_yaml(train, val, expected, tmp_path):
    lists = {"one.txt": "./images/a/b.jpg\n", "two.txt": "images/c/d.jpg\n"}
    lists |= {"windows.txt": "D:\\x\\images\\a\\b.jpg\r\n", "moved.txt": "data/images/a/b.jpg\n"}
    text = YAML.format(train=train, val=val)
    tree = put(tmp_path, {"pets.yaml": text, "readme.yaml": "a: 1", **IMAGES, **lists})
    assert yolo.sources_in(tree).files[0].options == yolo.YoloOptions("pets.yaml")
    assert splits_of(tree, "yolo", yaml="pets.yaml") == (expected, 2 - len(expected))


@pytest.mark.parametrize(
    ("yaml", "texts", "expected"),
    [
        ("nc: 2", {"classes.txt": "cat\ndog\n"}, []),
        ("nc: two", {}, []),
        ("nc: 3", {}, ["2 classes, but 'nc' is 3; other ids are rejected", "Correct either"]),
        (
            "",
            {"classes.txt": "dog\ncat\n", "labels/classes.txt": "cat\ndog"},
            ["other names than classes.txt, which is not read", "Correct either, or remove it"],
        ),
    ],
)
def test_contradicting_classes_of_yolo_are_a_warning(yaml, texts, expected, tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "1.jpg").touch()
    for name, text in {"data.yaml": f"names: [cat, dog]\n{yaml}", **texts}.items():
        (tmp_path / name).write_text(text)
    tree = FileTree(str(tmp_path))
    found = yolo.probe(tree, yolo.sources_in(tree).files[0])
    begin = f"warning: {tmp_path}/data.yaml: 'names' has "
    assert [*lines(found.findings)] == [
        line.format(text)
        for line, text in zip((begin + "{}", "      ({})"), expected, strict=False)
    ]


def test_labels_that_are_all_elsewhere_are_a_reject(tmp_path):
    files = {
        "data.yaml": YAML.format(train="images", val=""),
        "images/b.jpg": b"",
        "Labels/b.txt": "",
    }
    source = TableFile(put(tmp_path, files).root, "yolo", options=yolo.YoloOptions("data.yaml"))
    _, reject, skipped = FORMATS["yolo"].parts(source)
    expected = "no image has a label file: expected one such as labels/b.txt, got Labels/b.txt"
    assert (reject.reason, reject.detail) == (Reason.MISSING_FILE, expected)
    assert skipped == SkippedInput.named(UNMATCHED_FILES, ["Labels/b.txt"])


def test_lists_of_images_are_not_label_files(tmp_path):
    """Ultralytics' `autosplit` writes them beside `images/` and `labels/`."""
    files = {"data.yaml": YAML.format(train="autosplit_train.txt", val=""), "images/b.jpg": b""}
    files |= {"labels/b.txt": "", "labels/c.txt": "", "autosplit_train.txt": "./images/b.jpg\n"}
    source = TableFile(put(tmp_path, files).root, "yolo", options=yolo.YoloOptions("data.yaml"))
    part, *skipped = FORMATS["yolo"].parts(source)
    assert skipped == [SkippedInput.named(UNMATCHED_FILES, ["labels/c.txt"])]
    assert [type(one) for one in FORMATS["yolo"].read(part, Projection())] == [Row]


def test_a_yaml_may_describe_another_folder(tmp_path):
    put(tmp_path / "datasets" / "pets", {"images/b.jpg": b""})
    text = {"data.yaml": YAML.format(train="images", val="")}
    tree = put(tmp_path / "configs", text)
    assert yolo._root_of(tree, "data.yaml") == f"{tmp_path}/datasets/pets"
    moved = put(tmp_path / "moved" / "pets", text)
    assert yolo._root_of(moved, "data.yaml") == moved.root


def test_several_yaml_files_with_names_are_ambiguous(tmp_path):
    tree = put(tmp_path, {"a.yaml": "names: [a]", "b.yaml": "names: [b]"})
    with pytest.raises(UsageError, match=r"a\.yaml, b\.yaml\. Name one of them, as in --input /"):
        yolo.recognize_folder(tree)


def test_folders_are_splits_of_yolo_without_a_yaml(tmp_path):
    images = {"images/train/b.jpg": b"", "images/c.jpg": b""}
    tree = put(tmp_path, {"labels/train/b.txt": "", "classes.txt": "cat", **images})
    assert yolo.recognize_folder(tree)
    assert splits_of(tree, "yolo") == ({"images/train/b.jpg": "train"}, 1)
    everything = {"images/train/b.jpg": None, "images/c.jpg": None}
    assert splits_of(tree, "yolo", columns=("image",)) == (everything, 0)


def _voc(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "voc" / "JPEGImages", given)
    (root / "voc" / "Annotations").mkdir()
    for shot in given:
        objects = "".join(
            f"<object><name>{label}</name><difficult>0</difficult><bndbox><xmin>{xmin}</xmin>"
            f"<ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
            for label, xmin, ymin, xmax, ymax in shot.boxes
        )
        text = f"<annotation><filename>{shot.name}</filename>{objects}</annotation>"
        (root / "voc" / "Annotations" / f"{shot.stem}.xml").write_text(text, encoding="utf-8")
    return root / "voc"


def _yolo(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "yolo" / "images", given)
    (root / "yolo" / "labels").mkdir()
    for shot in given:
        lines = [
            f"{LABELS.index(label)} {(xmin + xmax) / 2 / shot.width} "
            f"{(ymin + ymax) / 2 / shot.height} {(xmax - xmin) / shot.width} "
            f"{(ymax - ymin) / shot.height}\n"
            for label, xmin, ymin, xmax, ymax in shot.boxes
        ]
        (root / "yolo" / "labels" / f"{shot.stem}.txt").write_text("".join(lines))
    names = ", ".join(LABELS)
    (root / "yolo" / "data.yaml").write_text(f"names: [{names}]\n", encoding="utf-8")
    return root / "yolo"


FORMS = {
    "voc": Form(_voc, ("--input_format", "voc")),
    "yolo": Form(_yolo, ("--input_format", "yolo"), in_fractions=True),
}
