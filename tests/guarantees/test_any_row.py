"""No row fails a run: any values become an example, or a reject with its reason.

A value of any kind is put into each column in turn and passes through all stages: read, analyzed,
bound, shuffled, built, and written as a reject.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Plan, ResolvedSchema, SplitRanges
from recordmill.schemas.records import ImageRef, Items, Row, SkippedInput
from recordmill.schemas.rejects import RecordError, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.schemas.yaml_files import parse_schema, preset
from recordmill.transforms.elements import ImageRefCoder, RowCoder
from recordmill.transforms.functional.rows.analysis import Analysis, Analyzer, build_plan
from recordmill.transforms.functional.rows.binding import Binding, broken_frame, reject_row
from recordmill.transforms.functional.rows.columns import resolve_sources
from recordmill.transforms.functional.rows.placement import arrange_shard
from recordmill.transforms.functional.sources import coco, json_lines, voc, yolo
from recordmill.transforms.join_labels import _join_key, _join_row
from recordmill.transforms.shards.build_examples import Fetched, ImageBuilder
from recordmill.transforms.storage.local_files import ImageRootGuard
from tests.beam.direct import config
from tests.binding import bind
from tests.images import png

EVERY_KIND = """
features:
  image: {kind: bytes, from: "image:bytes"}
  one_int: {kind: int64, from: "column:one_int"}
  one_float: {kind: float, from: "column:one_float"}
  one_bytes: {kind: bytes, from: "column:one_bytes"}
  default: {kind: int64, from: "column:default", default: 3}
  ints: {kind: int64, from: "column:ints", shape: []}
  floats: {kind: float, from: "column:floats", shape: [2]}
  texts: {kind: bytes, from: "column:texts", shape: [], missing: empty}
  single: {kind: bytes, from: "column:single", shape: [], single: true}
  points: {kind: float, from: "column:points", shape: [null, 2]}
  flat: {kind: int64, from: "flat:nested", shape: []}
  lengths: {kind: int64, from: "row_lengths:nested", shape: []}
  label: {kind: int64, from: "column:label", classes: true}
  name: {kind: bytes, from: "class_name:label"}
  labels: {kind: int64, from: "column:labels", shape: [], classes: true}
"""
KINDS = {
    **{"image": "a.png", "one_int": 1, "one_float": 1.5, "one_bytes": "ü", "default": 1},
    **{"ints": [1], "floats": [1.5, 2], "texts": ["a"], "single": "a", "points": [[1, 2]]},
    **{"nested": [[1], []], "label": "cat", "labels": ["cat"], "key": "k", "part": "train"},
    **{"group": "g"},
}
BOXES = {
    **{"image": "a.png", "labels": ["cat"], "xmin": [1.0], "ymin": [1], "xmax": [3], "ymax": [4]},
    **{"is_crowd": [0], "area": [6.0], "box_units": "pixel"},
}
OUTLINES = {"image": "a.png", "labels": ["cat"], "segmentation": [[[0, 0, 3, 0, 3, 3]]], "id": "1"}
FRAMES = {"image": "a.png", "sequence": "s", "frame": 3, "label": "cat"}
SCHEMAS = {
    "kinds": (parse_schema(EVERY_KIND, "every kind"), KINDS),
    "boxes": (preset("object_detection"), BOXES),
    "outlines": (preset("segmentation"), OUTLINES),
    "frames": (preset("image_sequence"), FRAMES),
    "tabular": (preset("tabular"), {"a": 1, "b": "x"}),
}
FLAGS = {"key_column": "key", "split_column": "part", "group_column": "group"}
IMAGE = png(8, 6)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**308, max_value=10**400)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters())  # lone surrogates included
    | st.sampled_from(
        ["", " ", "\ud800", "\0", "cat", "1", "1e999", "http://[", "[" * 99, "a" * 99]
    )
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(["size", "counts", "\ud800"]), inner, max_size=2)
    ),
    max_leaves=12,
)
OUTLINE_LIKE = st.fixed_dictionaries(
    {"size": st.just([6, 8]) | JSON, "counts": JSON | st.just([0, 48])}
) | st.lists(st.lists(SCALARS | st.integers(-20, 20), min_size=6, max_size=8), min_size=1)
DEEP = st.integers(1, 3000).map(lambda depth: "[" * depth + "]" * depth)
TYPED = (
    st.binary() | st.decimals(allow_nan=False) | st.datetimes() | st.dates() | st.lists(st.binary())
)


def run(name: str, columns: dict[str, Any], rows: list[Row]) -> None:
    """Passes rows through all stages, none of which may raise."""
    schema, _ = SCHEMAS[name]
    flags = {flag: column for flag, column in FLAGS.items() if column in columns}
    config = ConvertConfig(
        inputs=("/d/t.jsonl",), output="out", name="d", schema=schema, image_root="/d", **flags
    )
    schema = resolve_sources(schema, list(columns), config)
    binding = Binding(ResolvedSchema(schema), config.columns, "/d", guard="/d", **flags)
    analyzer = Analyzer(config, schema, binding, SplitRanges.from_weights(config.weights))
    rows = [RowCoder().decode(RowCoder().encode(row)) for row in rows]
    analysis = Analysis()
    for row in rows:
        analysis.add([row], analyzer)
    plan = build_plan(analysis, analyzer, {})
    binding = Binding(plan.resolved, config.columns, "/d", guard="/d", **flags)
    refs = [ref for row in rows if isinstance(ref := bound(row, binding), ImageRef)]
    whole, rejects = arrange_shard([(ref.record_key.encode(), ref) for ref in refs], plan.resolved)
    for outcome in [*rejects, *(built(ref, plan) for ref in whole)]:
        if isinstance(outcome, Reject):
            json.loads(outcome.to_json())


def read_rows(*lines: str) -> list[Row]:
    split = Part(TableFile("/d/t.jsonl", "jsonl"))
    found = json_lines.read(stream("\n".join(lines).encode()), split, Projection())
    return [row for row in found if isinstance(row, Row)]


def stream(data: bytes) -> Any:
    return io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


def bound(row: Row, binding: Binding) -> ImageRef | Reject:
    try:
        ref = bind(row, binding)
    except RecordError as error:
        json.loads(reject_row(row, binding, error).to_json())
        ref = broken_frame(row, binding, error)
        if ref is None:
            return reject_row(row, binding, error)
    return ImageRefCoder().decode(ImageRefCoder().encode(ref))


def built(ref: ImageRef, plan: Plan) -> Any:
    return ImageBuilder(plan, config(), ImageRootGuard(), None).build(Fetched(ref, IMAGE))


COLUMNS = [(name, column) for name, (_, columns) in SCHEMAS.items() for column in columns]


@pytest.mark.parametrize(("name", "column"), COLUMNS)
@settings(max_examples=25)
@given(st.data())
def test_a_json_value_of_any_kind_in_any_column(
    name: str, column: str, data: st.DataObject
) -> None:
    columns = SCHEMAS[name][1]
    good = json.dumps(columns)
    drawn = data.draw(DEEP | st.builds(json.dumps, JSON | st.lists(OUTLINE_LIKE, max_size=2)))
    rest = json.dumps({key: value for key, value in columns.items() if key != column})
    run(name, columns, read_rows(good, f'{rest[:-1]}, "{column}": {drawn}}}'))


@pytest.mark.parametrize(("name", "column"), COLUMNS)
@settings(max_examples=25)
@given(value=JSON | TYPED | st.lists(JSON | TYPED).map(Items), is_text=st.booleans())
def test_a_typed_value_of_any_kind_in_any_column(
    name: str, column: str, value: Any, is_text: bool
) -> None:
    columns = SCHEMAS[name][1]
    run(
        name,
        columns,
        [Row({**columns, column: value}, "/d/t", 1, is_text), Row(columns, "/d/t", 2)],
    )


@given(JSON | TYPED, JSON | TYPED)
def test_a_value_of_any_kind_in_the_join_column(value: Any, label: Any) -> None:
    row = Row({"image": "a.png", "id": value}, "/d/t", 1)
    try:
        _join_key(row, "id")
    except RecordError:
        return
    both = _join_row(row, [Row({"id": value, "label": label}, "/d/l", n) for n in (1, 2)])
    RowCoder().decode(RowCoder().encode(both))


COCO_ENTRIES = {
    "images": {"id": 1, "file_name": "a.png", "height": 6, "width": 8},
    "annotations": {
        **{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "area": 4},
        **{"iscrowd": 0, "segmentation": OUTLINES["segmentation"], "caption": "a cat"},
    },
    "categories": {"id": 1, "name": "cat"},
}


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part, entry in COCO_ENTRIES.items() for name in entry]
)
@settings(max_examples=25)
@given(st.data())
def test_a_value_of_any_kind_in_any_field_of_coco(
    part: str, name: str, data: st.DataObject
) -> None:
    drawn = data.draw(DEEP | st.builds(json.dumps, JSON | OUTLINE_LIKE))
    document = {kind: [entry, dict(entry)] for kind, entry in COCO_ENTRIES.items()}
    document[part][1][name] = "HERE"
    data_ = json.dumps(document).encode().replace(b'"HERE"', drawn.encode())
    found = list(coco.read(stream(data_), Part(TableFile("/d/c.json", "coco")), Projection()))
    assert all(isinstance(row, Row | Reject | SkippedInput) for row in found)
    for schema in ("boxes", "outlines"):
        columns = SCHEMAS[schema][1]
        run(schema, columns, [row for row in found if isinstance(row, Row)])


@given(st.text() | st.lists(st.text("0123456789.einfa+- \n")).map(" ".join))
def test_any_text_of_yolo_labels(text: str) -> None:
    try:
        yolo._parse(text, yolo.Classes({0: "cat"}))
    except RecordError as error:
        assert error.detail  # noqa: PT017


@given(st.text(), st.sampled_from(["filename", "size", "object", "xmin", "name", "difficult"]))
def test_any_text_in_an_element_of_voc(text: str, tag: str) -> None:
    box = "<xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax>"
    whole = (
        "<annotation><filename>a.png</filename><size><width>8</width></size><object><name>cat</name>"
        f"<difficult>0</difficult><bndbox>{box}</bndbox></object></annotation>"
    )
    try:
        voc._parse(whole.replace(f"<{tag}>", f"<{tag}>{text}").encode("utf-8", "surrogatepass"))
    except RecordError as error:
        assert error.detail  # noqa: PT017
