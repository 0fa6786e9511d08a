"""Tests of the schemas inferred from tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.records import Row
from recordmill.schemas.yaml_files import parse_schema
from recordmill.transforms.functional.rows.infer_schema import (
    SampledImages,
    infer_from_rows,
    schema_yaml,
)

names = st.text(min_size=1, max_size=8)
values = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.integers(-9, 9), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
    st.lists(st.lists(st.integers(-9, 9) | st.none(), max_size=2), max_size=2),
    st.recursive(
        st.integers(0, 9) | st.text(max_size=2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
        max_leaves=5,
    ),
)
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["1", "0.5", "a|b", "[1, 2]", "[[1, 2]]", '[{"a": 1}]', "x.jpg"]),
)


def rows_of(columns, cells, is_text):
    rows = [dict(zip(columns, row, strict=False)) for row in cells]
    return [Row(row, "t", number, is_text) for number, row in enumerate(rows, start=1)]


@st.composite
def tables(draw):
    is_text = draw(st.booleans())
    columns = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    cell = texts if is_text else values
    rows = draw(st.lists(st.tuples(*[cell] * len(columns)), min_size=1, max_size=6))
    return columns, rows_of(columns, rows, is_text)


@given(tables(), names, st.text(max_size=20))
def test_the_inferred_schema_of_any_table_is_valid(table, name, heading):
    columns, rows = table
    guess = infer_from_rows(columns, rows)
    assert {*guess.columns, *guess.left_out} == set(columns)
    if not guess.columns:
        return
    columns = guess.columns
    text = schema_yaml(guess, name, [heading], SampledImages())
    features = parse_schema(text, "guessed.yaml").features
    taken = {column for column in columns if column not in (guess.image, guess.split)}
    found = {f.column for f in features.values() if f.column is not None}
    assert found == taken


def guessed(columns, cells, is_text=True, images=None):
    guess = infer_from_rows(columns, rows_of(columns, cells, is_text))
    text = schema_yaml(guess, "t", [], images or SampledImages(1, Counter(jpeg=1), [(4, 3)]))
    return guess, text.splitlines()


def test_the_first_of_several_columns_of_images_is_said_to_be_one_of_them():
    _, lines = guessed(["left", "right"], [["1.jpg", "2.jpg"], ["3.jpg", "4.jpg"]])
    remark = "the images, or their paths; or with --columns image=right those of right"
    assert lines[5].endswith(f'"column:left"}}  # {remark}')


def test_a_further_column_of_masks_is_the_mask():
    columns = ["image", "mask", "label"]
    cells = [[f"{i}.jpg", f"{i}.png", "ab"[i % 2]] for i in range(4)]
    guess = infer_from_rows(columns, rows_of(columns, cells, True))
    sampled = SampledImages(1, Counter(png=1), [(4, 3)])
    lines = schema_yaml(guess, "t", [], sampled, {"mask": sampled}).splitlines()
    assert guess.images == ("mask",)
    assert '  mask: {kind: bytes, from: "mask:mask"}  # 1 png, 4x3' in lines


def test_further_images_of_16_bits_keep_them_and_may_be_masks():
    columns = ["image", "depth", "label"]
    cells = [[f"{i}.jpg", f"{i}.png", "ab"[i % 2]] for i in range(4)]
    guess = infer_from_rows(columns, rows_of(columns, cells, True))
    deep = SampledImages(1, Counter(png=1), [(4, 3)], are_deep=True)
    lines = schema_yaml(guess, "t", [], deep, {"depth": deep}).splitlines()
    remark = '1 png, 4x3; if its pixels are class ids: "mask:depth"'
    assert f'  depth: {{kind: bytes, from: "image:depth/bytes"}}  # {remark}' in lines
    assert lines[-2:] == [
        "image: {column: image, bit_depth: 16}",
        'images: {"depth": {"bit_depth": 16}}',
    ]
    settings = parse_schema("\n".join(lines), "guessed.yaml").image_settings
    assert [one.bit_depth for one in settings.values()] == [16, 16]


def test_the_image_of_records_keeps_its_name():
    guess = infer_from_rows(["pic", "cls"], rows_of(["pic", "cls"], [["1.jpg", "0"]] * 3, True))
    sampled = SampledImages(1, Counter(jpeg=1), [(4, 3)])
    assert schema_yaml(guess, "t", [], sampled, of_records=True).splitlines() == [
        "name: t",
        "features:",
        '  pic: {kind: bytes, from: "image:bytes"}  # 1 jpeg, 4x3',
        '  cls: {kind: int64, from: "column:cls"}  # for example 0',
        "image: {column: pic}",
    ]


def test_a_table_of_images():
    columns = ["id", "file", "note", "species", "score", "split", "tags", "box"]
    cells = [
        ["a1", "p/1.jpg", "x", "cat", "0.5", "train", "a|b", "[1, 2, 3, 4]"],
        ["a2", "p/2.PNG", "y", "dog", "1", "test", "b", "[1.5, 2, 3, 4]"],
        ["a3", "p/3.jpeg", "", "cat", "", "train", "", "[0, 0, 1, 1]"],
    ]
    guess, lines = guessed(columns, cells)
    assert (guess.image, guess.label, guess.split, guess.key) == ("file", "species", "split", "id")
    assert guess.roles == {"image": "file", "label": "species"}
    assert lines == [
        "name: t",
        "features:",
        '  image: {kind: bytes, from: "image:bytes"}  # 1 jpeg, 4x3',
        '  height: {kind: int64, from: "image:height"}',
        '  width: {kind: int64, from: "image:width"}',
        '  id: {kind: bytes, from: "column:id"}'
        "  # unique values: use --key_column id to make it the key",
        '  # file: {kind: bytes, from: "column:file"}  # the images, or their paths',
        '  note: {kind: bytes, from: "column:note"}  # 2 values: x, y',
        '  species: {kind: int64, from: "column:species", classes: true}  # 2 values: cat, dog',
        '  score: {kind: float, from: "column:score", missing: empty}'
        "  # for example 0.5; missing in some rows, which default: VALUE would fill",
        '  # split: {kind: bytes, from: "column:split"}'
        "  # the split of each row: use --split_column split",
        '  tags: {kind: bytes, from: "column:tags", shape: []}  # 2 values: b, a',
        '  box: {kind: float, from: "column:box", shape: [4]}'
        "  # boxes: use --schema object_detection --columns bbox=box "
        "--boxes column=bbox,order=xywh, or order=xyxy for two corners",
        "image: {column: file}",
    ]


@pytest.mark.parametrize(
    ("columns", "cells", "label"),
    [
        (
            ["image", "class_id", "class_name"],
            [["1.jpg", "1", "cat"], ["2.jpg", "2", "dog"]],
            "class_name",
        ),
        (["image", "label"], [["1.jpg", "7"], ["2.jpg", "8"]], "label"),
        (["image", "what", "n"], [[f"{n}.jpg", "ab"[n % 2], f"{n}"] for n in range(9)], "what"),
        (["image", "text"], [[f"{n}.jpg", f"text {n}"] for n in range(9)], None),
        (["image", "weight"], [["1.jpg", "0.5"]], None),
        (["image", "patient.id"], [[f"{n}.jpg", f"p{n % 3}"] for n in range(9)], None),
        (["image", "label_id"], [[f"{n}.jpg", f"p{n % 3}"] for n in range(9)], "label_id"),
    ],
)
def test_the_label_column_is_inferred(columns, cells, label):
    assert guessed(columns, cells)[0].label == label


def test_lists_of_labels_are_those_of_multi_label():
    guess, lines = guessed(["image", "labels"], [["1.jpg", "a|b"], ["2.jpg", "b|c"]])
    assert guess.roles == {"image": "image", "labels": "labels"}
    assert '  labels: {kind: int64, from: "column:labels", shape: [], classes: true}' in [
        line.partition("  # ")[0] for line in lines
    ]


def test_names_with_a_meaning_in_yaml_are_quoted():
    columns = ["no", "1", "a: b", "# c", "\u0085", "😀", "null", 'it\'s "x"']
    _, lines = guessed(columns, [["x"] * len(columns)])
    schema = parse_schema("\n".join(lines), "t.yaml")
    assert [feature.column for feature in schema.features.values()] == columns
    assert list(schema.features) == columns


def test_of_several_columns_of_paths_the_one_named_image_is_the_image():
    rows = rows_of(["file", "image"], [("a.jpg", "/data/a.jpg"), ("b.jpg", "/data/b.jpg")], True)
    assert infer_from_rows(["file", "image"], rows).image == "image"


def test_images_that_cannot_be_opened_are_reported():
    assert (
        str(SampledImages(3))
        == "none of the first 3 can be opened: check --image_root, and suffixes"
    )
    found = SampledImages(4, Counter(png=1, jpeg=2), [(4, 3), (9, 9), (1, 2)])
    assert str(found) == "2 jpeg, 1 png, 1x2 to 9x9; 1 cannot be opened"


@pytest.mark.parametrize(
    ("columns", "mapped"),
    [
        (["objects.bbox", "objects.category"], "bbox=objects.bbox,labels=objects.category"),
        (["boxes", "labels"], "bbox=boxes,labels=labels"),
        (["objects.bbox", "label"], "bbox=objects.bbox"),
    ],
)
def test_a_column_of_boxes_states_the_options_for_detection(columns, mapped):
    _, lines = guessed(columns, [[[[1, 2, 3, 4]], [0]], [[], []]])
    assert (
        f"# boxes: use --schema object_detection --columns {mapped} --boxes column=bbox,order=xywh"
        ", or order=xyxy for two corners" in next(line for line in lines if columns[0] in line)
    )


BOXES = [[[1.5, 2, 3, 4]], [[5, 6, 7, 8], [1, 2, 3, 4]], []]


@pytest.mark.parametrize(
    ("cells", "is_text", "line"),
    [
        (BOXES, False, '  x: {kind: float, from: "column:x", shape: [null, 4]}  # for example 2'),
        (list(map(str, BOXES)), True, '  x: {kind: float, from: "column:x", shape: [null, 4]}'),
        ([[[[1], [2]]]], False, '  x: {kind: int64, from: "column:x", shape: [null, 2, 1]}'),
        ([[["a"]], None], False, "shape: [null, 1], missing: empty}"),
    ],
)
def test_lists_of_lists_have_their_common_shape(cells, is_text, line):
    guess, lines = guessed(["x"], [(cell,) for cell in cells], is_text)
    assert guess.left_out == {}
    assert line in next(found for found in lines if found.startswith("  x:"))


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([[[1, 2]], [[3]]], "lists of lists of different lengths: see flat:"),
        ([{"a": 1}, None], "objects"),
        ([[[{"a": 1}]]], "objects"),
        ([[[1, [2]]]], "both lists and single values"),
        ([[[]]], "lists of lists of different lengths"),
    ],
)
def test_unsupported_columns_are_omitted_with_a_comment(cells, what):
    guess = infer_from_rows(["n", "x"], rows_of(["n", "x"], [(1, cell) for cell in cells], False))
    assert guess.columns == ("n",)
    assert guess.left_out["x"].startswith(what)
