"""Tests of COCO files: one row per image in any order of the file, and damage."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as pycocotools

from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import lines
from recordmill.schemas.input_formats import UNREAD_TOOLS, UnreadTool
from recordmill.schemas.records import KEYPOINTS, RECTANGLES, ROTATED, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import (
    DeclaredClasses,
    Part,
    Probe,
    Projection,
    TableFile,
)
from recordmill.transforms.functional.sources import coco
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS
from tests.shots import LABELS, Form, Shot, write_images

FILE = TableFile("d/c.json", "coco")
CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 7, "name": "Übermut"}]
OUTLINE = [[1, 1, 2, 2, 3, 1.5]]


def image_bytes(id_, **more):
    return {"id": id_, "file_name": f"{id_}.jpg", "height": 30, "width": 40, **more}


def annotation(id_, image, **more):
    return {
        **{"id": id_, "image_id": image, "category_id": 1, "bbox": [1.5, 2, 5, 6.25]},
        **{"area": 31.25, "iscrowd": 0, "segmentation": OUTLINE},
        **more,
    }


def document(images, annotations, categories=CATEGORIES):
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def read(document_, projection=Projection()):  # noqa: B008 - frozen
    data = document_ if isinstance(document_, bytes) else json.dumps(document_).encode()
    found = list(coco.read(io.BufferedReader(io.BytesIO(data)), Part(FILE), projection))
    return sorted(found, key=lambda f: f.line if isinstance(f, Row) else 10**9)


def probe(document_):
    data = document_ if isinstance(document_, bytes) else json.dumps(document_).encode()
    return coco.probe(io.BufferedReader(io.BytesIO(data)), FILE)


def test_null_is_no_area_and_no_crowd():
    without = annotation(1, 5)
    del without["area"]
    rows = read(document([image_bytes(5)], [annotation(1, 5, area=None, iscrowd=None)]))
    assert rows == read(document([image_bytes(5)], [without]))
    assert (rows[0].values["is_crowd"], "area" in rows[0].values) == ([0], False)


def test_an_entry_that_is_no_annotation_decides_nothing_for_the_others():
    whole = document([image_bytes(5)], [annotation(1, 5), annotation(2, 5)])
    odd = document([image_bytes(5)], [1, None, {"image_id": 6}, *whole["annotations"]])
    assert probe(odd) == probe(whole)
    assert [f for f in read(odd) if isinstance(f, Row)] == read(whole)


@pytest.mark.parametrize("columns", [None, ("image", *BOX_COLUMNS), ("image", "segmentation")])
def test_a_rectangle_that_cvat_has_turned_is_the_upright_box_around_it(columns):
    # A box of 4 x 2 around (2, 1), by 90 degrees, is one of 2 x 4; an outline is turned already.
    turned = {"bbox": [0, 0, 4, 2], "attributes": {"occluded": False, "rotation": 90.0}}
    upright = {"attributes": {"rotation": 0.0}, "segmentation": []}
    marked = {"attributes": {"rotation": True}, "segmentation": []}
    annotations = [
        annotation(1, 5, **turned, segmentation=[]),
        annotation(2, 5, attributes={"rotation": 90.0}),
        annotation(3, 6, **upright, turned=True),
        annotation(4, 7, **marked),
    ]
    whole = document([image_bytes(5), image_bytes(6), image_bytes(7)], annotations)
    one, other, third, *skipped = read(whole, Projection(columns=columns))
    assert SkippedInput.named(ROTATED, ["5.jpg"]) in skipped
    assert SkippedInput.named(ROTATED, ["6.jpg"]) not in skipped
    assert [third.values.get(s) for s in BOX_COLUMNS[:4]] == [
        other.values.get(s) for s in BOX_COLUMNS[:4]
    ]
    if columns is None or columns[1] in BOX_COLUMNS:
        sides = [[row.values[side] for side in BOX_COLUMNS[:4]] for row in (one, other)]
        boxes = [[*zip(*found, strict=True)] for found in sides]
        assert boxes == [[pytest.approx((1, -1, 3, 3)), (1.5, 2, 6.5, 8.25)], [(1.5, 2, 6.5, 8.25)]]
    if columns is None or "segmentation" in columns:
        (outline,) = one.values["segmentation"][0]
        assert outline == pytest.approx([3, -1, 3, 3, 1, 3, 1, -1])


def test_boxes_in_another_mode_of_detectron2_are_rejected():
    whole = document(
        [image_bytes(5)], [annotation(1, 5, bbox_mode=1), annotation(2, 5, bbox_mode=0)]
    )
    (found,) = read(whole)
    assert (found.reason, found.detail) == (
        Reason.BAD_BOX,
        "5.jpg: annotation 2: expected bbox_mode 1 (x, y, width, height), got 0",
    )


def test_values_that_are_not_stored_are_a_note():
    attributes = {"color": "red", "rotation": 9.0, "occluded": False}
    known = annotation(1, 5, num_keypoints=0, attributes={"occluded": False}, bbox_mode=1)
    assert probe(document([image_bytes(5)], [known])).findings == ()
    others = annotation(2, 5, attributes=attributes, score=0.5, track_id=0)
    (found,) = probe(document([image_bytes(5)], [known, others, others])).findings
    assert (found.kind, found.line) == (
        "unread_values",
        "note: d/c.json: annotations have values that are not stored: attribute score, attribute "
        "color",
    )


def test_categories_of_one_name_are_a_warning():
    cats = [{"id": id_, "name": name} for id_, name in ((0, "cat"), (3, "dog"), (7, "cat"))]
    found = probe(document([image_bytes(5)], [annotation(1, 5)], cats))
    assert found.classes == {"labels": DeclaredClasses(((0, "cat"), (3, "dog")))}
    assert [*lines(found.findings)] == [
        "warning: d/c.json: categories of one name become one class (cat: 0 and 7)",
        "      (if they differ, rename one of the two in the file)",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 29)), min_size=3, max_size=9),
    st.lists(st.booleans(), min_size=1, max_size=200),
)
def test_annotations_without_a_box_have_that_of_their_outline(points, pixels):
    """The boxes are those of pycocotools for run lengths, and the extremes of polygons."""
    polygon = [float(n) for point in points for n in point]
    mask = np.zeros((30, 40), np.uint8, order="F")
    mask.T.reshape(-1)[: len(pixels)] = pixels
    packed = pycocotools.encode(mask)
    compressed = {"size": [30, 40], "counts": packed["counts"].decode()}
    annotations = [annotation(1, 5, segmentation=[polygon]), annotation(2, 5)]
    expected = [(min(polygon[::2]), min(polygon[1::2]), max(polygon[::2]), max(polygon[1::2]))]
    expected.append((1.5, 2, 6.5, 8.25))
    if any(pixels):
        annotations.append(annotation(3, 5, segmentation=compressed))
        x, y, width, height = pycocotools.toBbox(packed)
        expected.append((x, y, x + width, y + height))
    whole = document([image_bytes(5)], annotations)
    for one in (annotations[0], *annotations[2:]):
        del one["bbox"]
    found = probe(whole)
    assert (found.preset, "xmin" in found.columns) == ("object_detection", True)
    assert [f.kind for f in found.findings] == ["boxes_of_outlines"]
    (row,) = read(whole, Projection(("image", "xmin", "ymin", "xmax", "ymax", "labels")))
    corners = zip(*(row.values[side] for side in ("xmin", "ymin", "xmax", "ymax")), strict=True)
    assert list(corners) == expected


@pytest.mark.parametrize("outline", [[], [[1, 2]], {"size": [30, 40], "counts": [1200]}, None])
def test_an_annotation_with_neither_box_nor_outline_is_rejected(outline):
    broken = annotation(1, 5, segmentation=outline)
    del broken["bbox"]
    (reject,) = read(document([image_bytes(5)], [broken]))
    assert (reject.reason, reject.detail) == (
        Reason.BAD_BOX,
        "5.jpg: annotation 1: bbox: expected four numbers, got None",
    )


def test_a_byte_order_mark_is_no_part_of_the_document():
    plain = document([image_bytes(5)], [annotation(1, 5)])
    marked = b"\xef\xbb\xbf" + json.dumps(plain).encode()
    assert (probe(marked), read(marked)) == (probe(plain), read(plain))


@pytest.mark.parametrize("text", [b'"a", nan, 1', b'"\xe9"'], ids=["not JSON", "not UTF-8"])
def test_damage_is_shown_with_the_text_around_it(text):
    (reject,) = read(b'{"images": [], "annotations": [' + text + b"]}")
    assert reject.reason is Reason.LOST_ROWS
    assert reject.detail.count("\n") == 0
    assert text.decode("utf-8", "replace") in reject.detail


def test_a_image_is_a_row_with_a_list_an_attribute():
    rle = {"counts": [3, 4], "size": [30, 40]}
    crowd = annotation(2, 5, category_id=7, bbox=[0, 0, 40, 30], iscrowd=1, segmentation=rle)
    (row,) = read(document([image_bytes(5)], [annotation(1, 5), crowd]))
    assert row == Row(
        values={
            "image": "5.jpg",
            "id": "5",
            "height": 30,
            "width": 40,
            "xmin": [1.5, 0.0],
            "ymin": [2.0, 0.0],
            "xmax": [6.5, 40.0],
            "ymax": [8.25, 30.0],
            "box_units": None,
            "labels": ["cat", "Übermut"],
            "label": ["cat", "Übermut"],
            "category_id": [1, 7],
            "is_crowd": [0, 1],
            "caption": [],
            "area": [31.25, 31.25],
            "segmentation": [OUTLINE, rle],
        },
        file="d/c.json",
        line=1,
    )


def test_a_image_without_annotations_is_a_row_with_empty_lists():
    (row,) = read(document([image_bytes(5)], []))
    assert (row.values["labels"], row.values["xmin"]) == ([], [])


def test_captions_are_lists():
    notes = [{"id": i, "image_id": 5, "caption": c} for i, c in enumerate(["a | b", "ü"])]
    (row,) = read(document([image_bytes(5)], notes), Projection(("image", "caption")))
    assert row.values == {"image": "5.jpg", "caption": ["a | b", "ü"]}


def test_categories_without_boxes_are_the_labels_of_images():
    # As of iNaturalist: image 5 has one label, image 6 the same one twice, image 7 two, 8 none.
    pairs = [(5, 7), (6, 1), (6, 1), (7, 1), (7, 7)]
    notes = [{"id": i, "image_id": a, "category_id": b} for i, (a, b) in enumerate(pairs)]
    whole = document([image_bytes(i) for i in range(5, 9)], notes)
    found = probe(whole)
    assert (found.preset, found.columns) == (
        "image_classification",
        ("image", "id", "height", "width", "label", "labels", "category_id"),
    )
    classes = DeclaredClasses(((1, "cat"), (7, "Übermut")))
    assert found.classes == {"label": classes, "labels": classes}
    rows = read(whole, Projection(("label", "labels")))
    assert [(row.values["label"], row.values["labels"]) for row in rows] == [
        ("Übermut", ["Übermut"]),
        ("cat", ["cat", "cat"]),
        (["cat", "Übermut"], ["cat", "Übermut"]),
        (None, []),
    ]


def test_annotations_without_a_box_are_rejected_if_boxes_are_asked_for():
    notes = [{"id": 1, "image_id": 5, "category_id": 1}, annotation(2, 5)]
    for columns in (("image", *BOX_COLUMNS), ("image", "labels")):
        (reject,) = read(document([image_bytes(5)], notes), Projection(columns))
        assert reject.reason == Reason.BAD_BOX
    (reject,) = read(document([image_bytes(5)], notes[:1]), Projection(("image", "xmin")))
    assert reject.reason == Reason.BAD_BOX


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=40), st.randoms(use_true_random=False))
def test_every_annotation_is_with_its_image_whatever_the_order(images, shuffled: random.Random):
    notes = [annotation(i, image, bbox=[i, 0, 1, 1]) for i, image in enumerate(images)]
    shuffled.shuffle(notes)
    decoded_images = [image_bytes(i) for i in range(8)]
    parts = list(document(decoded_images, notes).items())
    shuffled.shuffle(parts)
    found = read(dict(parts))
    rows = [f for f in found if isinstance(f, Row)]
    expected = [[float(n["id"]) for n in notes if n["image_id"] == i] for i in range(8)]
    if images and not any(expected):
        assert rows == []  # see below
    else:
        assert [row.values["xmin"] for row in rows] == expected
    lost = sum(f.number for f in found if isinstance(f, SkippedInput))
    assert lost == sum(image >= 8 for image in images)


@pytest.mark.parametrize(
    ("images", "annotations", "reason", "message"),
    [
        (
            [image_bytes(5)],
            [annotation(1, 5, bbox=[1, 2, 3])],
            Reason.BAD_BOX,
            "annotation 1: bbox",
        ),
        ([image_bytes(5)], [annotation(1, 5, bbox=[1, 2, 3, "x"])], Reason.BAD_BOX, "got 'x'"),
        ([image_bytes(5)], [annotation(1, 5, bbox=[1, 2, 3, True])], Reason.BAD_BOX, "got True"),
        ([image_bytes(5)], [{"image_id": 5, "category_id": 1}], Reason.BAD_BOX, "got None"),
        (
            [image_bytes(5)],
            [annotation(1, 5, category_id=3)],
            Reason.UNKNOWN_LABEL,
            "category_id 3",
        ),
        ([{"id": 5}], [], Reason.MALFORMED_ROW, "file_name: expected text, got None"),
    ],
)
def test_what_makes_no_row_is_a_reject(images, annotations, reason, message):
    (reject,) = read(document(images, annotations))
    assert (reject.source, reject.reason) == ("d/c.json:1", reason)
    assert message in reject.detail
    named = ("5.jpg", "d/5.jpg") if "file_name" in images[0] else ("", "")
    assert (reject.key, reject.uri) == named


@pytest.mark.parametrize("box", [[], None, [1, 2, 3], [1, 2, 3, "x"]])
def test_an_annotation_without_a_valid_box_may_lose_its_box(box):
    whole = document([image_bytes(5)], [annotation(1, 5), annotation(2, 5, bbox=box)])
    (row,) = read(whole, Projection(drops_boxes=True))
    assert row.values["xmin"][0] == 1.5
    assert [math.isnan(row.values[side][1]) for side in ("xmin", "ymin", "xmax", "ymax")] == [
        True
    ] * 4
    assert len(row.values["labels"]) == 2  # `transform_boxes` drops both


def test_the_number_of_categories_is_limited(monkeypatch):
    monkeypatch.setattr(coco, "MAX_CLASSES", 2)
    probe(document([image_bytes(5)], [annotation(1, 5)]))
    more = [*CATEGORIES, {"id": 8, "name": "c"}]
    with pytest.raises(UsageError, match="expected at most 2 categories, got more"):
        probe(document([image_bytes(5)], [annotation(1, 5)], more))


def test_categories_are_declared_in_the_order_of_their_ids():
    categories = [{"id": 90, "name": "z"}, {"id": 1, "name": "b"}, {"id": 7, "name": "a"}]
    probed = probe(document([image_bytes(5)], [annotation(1, 5)], categories))
    assert probed.classes["labels"].names == ((1, "b"), (7, "a"), (90, "z"))
    twice = [*categories, {"id": 91, "name": "z"}]
    assert probe(document([image_bytes(5)], [annotation(1, 5)], twice)).classes == probed.classes
    for odd in ("1", None, True):
        unordered = [*categories, {"id": odd, "name": "c"}]
        assert probe(document([image_bytes(5)], [annotation(1, 5)], unordered)).classes == {}


def test_images_are_in_the_folder_of_the_source_unless_there_is_an_image_root():
    data = json.dumps(document([image_bytes(5)], [annotation(1, 5, category_id=3)])).encode()
    file = replace(FILE, options=coco.CocoOptions("d/train"))

    def uri(projection: Projection, file_name: str = "5.jpg") -> str:
        changed = io.BytesIO(data.replace(b"5.jpg", file_name.encode()))
        (found,) = coco.read(io.BufferedReader(changed), Part(file), projection)
        return found.uri

    assert uri(Projection()) == "d/train/5.jpg"
    assert uri(Projection(image_root="other")) == "other/5.jpg"
    assert uri(Projection(), "/a/5.jpg") == "/a/5.jpg"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (json.dumps(document([image_bytes(5), image_bytes(6)], [])).encode(), "5.jpg"),
        (json.dumps(document([{"id": 5}, image_bytes(6)], [])).encode(), "6.jpg"),
        (b'{"annotations": [{"image_id": 1}]}', None),
        (b'{"images": [{"file_name": 7}]}', None),
        (b'{"images": [{"file_na', None),
        (b"", None),
        (b'{"images": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'{"images": ' + b"[" * 100_000, None),
        (b'{"images": [{"id": ' + b"9" * 5000 + b', "file_name": "5.jpg"}]}', None),
        (b'{"images": [{"file_name": "5.jpg", "id": ' + b"9" * 5000 + b"}]}", None),
    ],
    ids=range(10),
)
def test_the_first_image_is_found_without_reading_on(data, name):
    assert next(coco._names_in(io.BytesIO(data), "images"), None) == name


def test_invalid_entries_and_duplicate_ids_are_reported():
    found = read(document([image_bytes(5), image_bytes(5), 3], [{"bbox": []}, annotation(1, 5)]))
    rejects = [(f.source, f.detail) for f in found if isinstance(f, Reject)]
    assert [f.line for f in found if isinstance(f, Row)] == [1]
    assert sorted(rejects) == [
        (
            "d/c.json",
            "annotations, number 1: expected an object whose 'image_id' is an integer or text, "
            "got None",
        ),
        (
            "d/c.json",
            "images, number 3: expected an object whose 'id' is an integer or text, got None",
        ),
        ("d/c.json:2", "5.jpg: duplicate image id 5, first seen in number 1"),
    ]


@pytest.mark.parametrize(
    ("images", "annotations", "message"),
    [
        (
            [image_bytes(1), image_bytes(2)],
            [annotation(1, "1"), annotation(2, "2")],
            "image_id '1' and the image id 1 differ",
        ),
        (
            [image_bytes("1"), image_bytes("2")],
            [annotation(1, 1), annotation(2, 2)],
            "image_id 1 and the image id '1' differ",
        ),
        (
            [image_bytes(1), image_bytes(2)],
            [annotation(1, 98), annotation(2, 99)],
            "no annotation of the file",
        ),
    ],
)
def test_images_are_rejected_if_no_annotation_matches(images, annotations, message):
    found = [f for f in read(document(images, annotations)) if not isinstance(f, SkippedInput)]
    found.sort(key=lambda reject: reject.source)
    assert [(f.source, f.reason) for f in found] == [
        (f"d/c.json:{number}", Reason.MALFORMED_ROW) for number in (1, 2)
    ]
    assert message in found[0].detail


def test_annotations_without_an_image_are_named():
    strays = [annotation(7, 9), {"image_id": 9}, {"image_id": "x", "id": 8}]
    found = read(document([image_bytes(5)], [annotation(1, 5), *strays]))
    assert {f.names for f in found if isinstance(f, SkippedInput)} == {
        ("annotation 3 of image_id 9", "annotation 7 of image_id 9"),
        ("annotation 8 of image_id 'x'",),
    }


def test_image_ids_of_different_types_are_rejected():
    notes = [annotation(1, 1), annotation(2, "2"), annotation(3, 3), annotation(4, "3")]
    row, *rejects = read(document([image_bytes(i) for i in (1, 2, 3)], notes))
    assert row.values["image"] == "1.jpg"
    assert sorted(reject.detail for reject in rejects) == [
        f"{id_}.jpg: annotation {number}: image_id '{id_}' and the image id {id_} differ in "
        "type. Write both as numbers."
        for number, id_ in ((2, 2), (4, 3))
    ]


def test_ids_that_are_one_text_are_two_images_if_both_are_there():
    notes = [annotation(1, 1, bbox=[1, 1, 1, 1]), annotation(2, "1", bbox=[2, 2, 2, 2])]
    rows = read(document([image_bytes(1), image_bytes("1", file_name="b.jpg")], notes))
    assert [row.values["xmin"] for row in rows] == [[1.0], [2.0]]


def test_categories_of_one_id_are_no_label():
    categories = [*CATEGORIES, {"id": 1, "name": "dog"}]
    notes = [annotation(1, 5), annotation(2, 6, category_id=7)]
    row, reject = read(document([image_bytes(5), image_bytes(6)], notes, categories))
    assert row.values["labels"] == ["Übermut"]
    assert (reject.reason, reject.detail) == (
        Reason.UNKNOWN_LABEL,
        "5.jpg: annotation 1: category_id 1 is the id of several categories: 'cat', 'dog'. "
        "Give each a unique id.",
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (b'{"image_id": 5, "category_id": 1, "category_id": 7, "bbox": [1, 1, 1, 1]}', "'catego"),
        (b'{"image_id": 5, "segmentation": {"counts": "a", "counts": "b"}}', "'counts' occurs"),
        (b'{"image_id": 5, "x": ' + b"[" * 2000 + b"]" * 2000 + b"}", "nested too deeply"),
        (b'{"image_id": 5, "x": ' + b'{"y":' * 64 + b"1" + b"}" * 64 + b"}", "nested too deeply"),
    ],
)
def test_a_bad_annotation_costs_its_image_and_no_other(entry, message):
    whole = document([image_bytes(5), image_bytes(6)], ["HERE", annotation(2, 6)])
    found = read(json.dumps(whole).encode().replace(b'"HERE"', entry))
    assert [f.values["image"] for f in found if isinstance(f, Row)] == ["6.jpg"]
    (reject,) = (f for f in found if isinstance(f, Reject))
    assert (reject.source, reject.reason) == ("d/c.json:1", Reason.MALFORMED_ROW)
    assert reject.detail.startswith("5.jpg: annotation 1: ")
    assert message in reject.detail


def test_numbers_that_are_not_finite_cost_only_images_that_use_them():
    annotations = [annotation(1, 5, score=math.nan), annotation(2, 6, bbox=[1, math.inf, 2, 3])]
    row, reject = read(document([image_bytes(5), image_bytes(6)], annotations))
    assert (row.values["image"], row.values["xmin"]) == ("5.jpg", [1.5])
    assert (reject.key, reject.reason) == ("6.jpg", Reason.BAD_BOX)


def test_what_is_nested_deeply_beside_the_images_is_no_matter():
    deep = b'{"info": ' + b"[" * 100_000 + b"]" * 100_000 + b', "images": [{"id": 5, "file_name": '
    (row,) = read(deep + b'"5.jpg"}]}')
    assert row.values["image"] == "5.jpg"


def test_damaged_json_gives_no_row_at_all():
    data = json.dumps(document([image_bytes(i) for i in range(9)], [annotation(1, 5)])).encode()
    for cut in range(0, len(data) - 1, 7):
        (reject,) = read(data[:cut])
        assert (reject.source, reject.reason) == ("d/c.json", Reason.LOST_ROWS)


def test_the_probe_returns_the_columns():
    instances = probe(document([image_bytes(5)], [annotation(1, 5)]))
    captions = probe(document([image_bytes(5)], [{"image_id": 5, "caption": "x"}]))
    no_objects = probe(document([image_bytes(5)], []))
    unlabeled = probe({"images": [{"id": 5, "file_name": "5.jpg"}]})
    shared = ("image", "id", "height", "width")
    assert {"xmin", "labels", "segmentation", "box_units"} <= set(instances.columns)
    assert captions == Probe((*shared, "caption"), True, preset="captioning")
    classes = {"labels": DeclaredClasses(((1, "cat"), (7, "Übermut")))}
    assert (instances.classes, instances.preset) == (classes, "object_detection")
    assert unlabeled == Probe(shared, True)
    assert (no_objects.columns, no_objects.preset) == (instances.columns, "object_detection")
    assert [finding.kind for finding in no_objects.findings] == ["no_annotations"]


@pytest.mark.parametrize(
    ("document_", "message"),
    [
        ({"rows": []}, "expected a COCO file with 'images'"),
        (b"[1, 2]", r"^d/c\.json: expected a COCO file or one .*, got an array"),
        (b'{"image": "1.jpg"}\n{"image": "2.jpg"}\n', "not a JSON document"),
        (b"image,label", "not a JSON document"),
        (b'{"images": [{"id": 5}], "images": []}', "the name 'images' occurs twice"),
        (document([image_bytes(5)], {"1": annotation(1, 5)}), "'annotations': expected a list"),
        (
            document([image_bytes(5)], [], {"1": "cat"}),
            "'categories': expected a list of objects, got",
        ),
        (document([image_bytes(5)], [{"image_id": 5, "segments_info": []}]), "panoptic"),
        ({"sketches": []}, r"^d/c\.json: expected COCO, got annotations of Sketcher\. Export it\."),
        ([{"x": {"sketches": 8}}], "got annotations of Sketcher"),
    ],
)
def test_files_that_are_not_coco_are_rejected(document_, message, monkeypatch):
    monkeypatch.setitem(UNREAD_TOOLS, "Sketcher", UnreadTool((b"sketches",), "Export it"))
    with pytest.raises(UsageError, match=message):
        probe(document_)


@pytest.mark.parametrize(
    ("boxes", "is_two_corners"),
    [
        pytest.param([([10, 10, 30, 40], 600)], True, id="corners"),
        pytest.param([([10, 10, 30, 40], 1200)], False, id="left, top, width, height"),
        pytest.param([([10, 10, 30, 40], 600), ([1, 1, 9, 9], 81)], False, id="both"),
        pytest.param([([10, 10, 30, 40], 600), ([1, 1, 9, 9], 5)], False, id="areas of outlines"),
        pytest.param([([0, 0, 30, 40], 1200)], False, id="either"),
        pytest.param([([10, 10, 10, 40], 0)], False, id="no extent"),
        pytest.param([([10, 10, "x", 40], 600), ([], 1)], False, id="invalid, and rejected later"),
        pytest.param([([10, 10, 30, 40], None)], False, id="without areas"),
    ],
)
def test_boxes_that_are_two_corners_by_their_areas_stop(boxes, is_two_corners):
    found = [annotation(i, 5, bbox=box, area=area) for i, (box, area) in enumerate(boxes)]
    stops = pytest.raises(
        UsageError, match=r"expected bbox as \[x, y, width, height\]; by its area"
    )
    with stops if is_two_corners else nullcontext():
        probe(document([image_bytes(5)], found))


def test_a_compressed_file_is_read():
    data = gzip.compress(json.dumps(document([image_bytes(5)], [annotation(1, 5)])).encode())
    stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data)))
    (row,) = coco.read(stream, Part(FILE), Projection(("xmin",)))
    assert row.values == {"xmin": [1.5]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"coco_url": "http://images.cocodataset.org/val2017/5.jpg"}, "val2017/5.jpg"),
        ({"coco_url": "http://host/5.jpg", "file_name": "6.jpg"}, "6.jpg"),
    ],
)
def test_images_of_lvis_have_their_path_in_an_address(fields, path):
    image = {"id": 5, "height": 30, "width": 40, **fields}
    (row,) = read(document([image], [annotation(1, 5)]))
    assert row.values["image"] == path
    stream = io.BytesIO(json.dumps(document([image], [])).encode())
    assert next(coco._names_in(stream, "images")) == path


def test_an_empty_outline_is_that_of_its_box():
    entries = [annotation(1, 5, segmentation=[]), annotation(2, 5), annotation(3, 5)]
    note, row = sorted(
        read(document([image_bytes(5)], entries)), key=lambda found: isinstance(found, Row)
    )
    box = [1.5, 2.0, 6.5, 2.0, 6.5, 8.25, 1.5, 8.25]
    assert row.values["segmentation"] == [[box], OUTLINE, OUTLINE]
    assert note == SkippedInput.named(RECTANGLES, ["5.jpg"])
    (plain,) = read(document([image_bytes(5)], entries), Projection(("image", "xmin")))
    assert plain.values == {"image": "5.jpg", "xmin": [1.5, 1.5, 1.5]}


def test_keypoints_are_those_of_all_objects():
    person = {"id": 1, "name": "cat", "keypoints": ["nose", "tail"]}
    posed = {**annotation(1, 5), "category_id": 1, "keypoints": [1, 2, 2, 3, 4, 1]}
    bare = {**annotation(2, 5), "category_id": 1}
    document_ = document([image_bytes(5)], [posed, bare], [person])
    (row,) = read(document_)
    assert row.values["keypoints"] == [[1, 2, 2, 3, 4, 1], [0] * 6]
    assert row.values["keypoint_names"] == [["nose", "tail"]] * 2
    assert probe(document_).preset == "keypoints"
    (reject,) = read(document([image_bytes(5)], [{**posed, "keypoints": [1, 2]}], [person]))
    assert "expected 6 numbers, got [1, 2]" in reject.detail


def test_keypoints_that_no_feature_needs_reject_no_image():
    person = {"id": 1, "name": "cat", "keypoints": ["nose", "tail"]}
    posed = {**annotation(1, 5), "category_id": 1, "keypoints": [1, 2]}
    whole = document([image_bytes(5)], [posed], [person])
    row, note = read(whole, Projection(("image", "labels")))
    assert row.values == {"image": "5.jpg", "labels": ["cat"]}
    assert note == SkippedInput.named(KEYPOINTS, ["5.jpg"])
    (reject,) = read(whole, Projection(("image", "keypoints")))
    assert "expected 6 numbers, got [1, 2]" in reject.detail


def _coco(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "images", given)
    annotations = [
        {
            "id": 100 * i + k,
            "image_id": i,
            "category_id": LABELS.index(label),
            "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
            "area": (xmax - xmin) * (ymax - ymin),
            "iscrowd": 0,
        }
        for i, shot in enumerate(given)
        for k, (label, xmin, ymin, xmax, ymax) in enumerate(shot.boxes)
    ]
    return _coco_file(root, given, annotations)


def _captions(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "images", given)
    notes = [
        {"id": 100 * i + k, "image_id": i, "caption": caption}
        for i, shot in enumerate(given)
        for k, caption in enumerate(shot.captions)
    ]
    return _coco_file(root, given, notes)


def _categories(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root, given)
    notes = [
        {"id": i, "image_id": i, "category_id": LABELS.index(shot.label)}
        for i, shot in enumerate(given)
    ]
    return _coco_file(root, given, notes, "")


def _coco_file(
    root: Path, given: Sequence[Shot], annotations: list[dict[str, Any]], folder: str = "images/"
) -> Path:
    images = [
        {"id": i, "file_name": folder + s.name, "width": s.width, "height": s.height}
        for i, s in enumerate(given)
    ]
    categories = [{"id": i, "name": name} for i, name in enumerate(LABELS)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(document))
    return root / "annotations.json"


def _zipped(path: Path) -> Path:
    zipped = path.with_name(path.name + ".gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return zipped


FORMS = {
    "coco": Form(_coco),
    "coco.gz": Form(lambda root, given: _zipped(_coco(root, given)), ("--input_format", "coco")),
    "coco captions": Form(_captions, holds="captions"),
    "coco categories": Form(_categories, holds="label"),
}
