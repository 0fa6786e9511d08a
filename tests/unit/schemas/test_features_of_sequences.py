"""Schemas of sequences: declarations, errors, and the binding of their rows."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import ShardEntry, SplitEntry
from recordmill.schemas.plan import ResolvedSchema, SplitRanges
from recordmill.schemas.records import BuiltFrame, ImageRef, Row, SerializedExample
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tensorflow_metadata import schema_text
from recordmill.schemas.yaml_files import parse_schema, preset
from recordmill.transforms.elements import ImageRefCoder
from recordmill.transforms.functional.records.index import RecordIndex, index_mismatch
from recordmill.transforms.functional.rows.analysis import (
    Analysis,
    Analyzer,
    build_plan,
    row_positions,
)
from recordmill.transforms.functional.rows.binding import Binding, broken_frame
from recordmill.transforms.functional.rows.placement import (
    _spans_splits_reject,
    in_one_split,
    split_of,
)
from tests.binding import bind, identity_of

FRAMES = "  a: {kind: bytes, from: key, per: frame}\n"


def parsed(text: str) -> Schema:
    return parse_schema(text, "s.yaml")


def test_the_preset_has_a_context_and_frames():
    schema = preset("image_sequence")
    assert schema.sequence is not None
    assert (schema.sequence.group, schema.sequence.order) == ("sequence", "frame")
    described = {n: (f.kind.value, str(f.source), f.shape) for n, f in schema.features.items()}
    assert {name: described[name] for name in schema.context_features} == {
        "sequence/id": ("bytes", "key", None),
        "label": ("int64", "column:label", None),
    }
    assert {name: described[name] for name in schema.frame_features} == {
        "image/encoded": ("bytes", "image:bytes", None),
        "image/format": ("bytes", "image:format", None),
        "image/height": ("int64", "image:height", None),
        "image/width": ("int64", "image:width", None),
        "image/filename": ("bytes", "column:image", None),
    }


def test_other_schemas_have_only_a_context():
    schema = preset("object_detection")
    assert (schema.context_features, schema.frame_features) == (schema.features, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "features:\n" + FRAMES,
            "s.yaml:2:36: at features > a > per: per: frame needs a sequence. "
            "Add sequence: {group: C, order: C}.",
        ),
        (
            "sequence: {group: v, order: f}\nfeatures:\n  a: {kind: bytes, from: key}\n",
            "s.yaml:1:11: at sequence: a sequence needs a feature with per: frame. Add one.",
        ),
        (
            "sequence: {group: v, order: f}\nfeatures:\n" + FRAMES + "  b:\n"
            "    {kind: bytes, from: 'image:bytes'}\n",
            "s.yaml:5:5: at features > b: a sequence has an image per frame. Add per: frame.",
        ),
        (
            "sequence: {group: v, order: f}\nfeatures:\n"
            + FRAMES
            + "  b: {kind: float, from: 'column:b', shape: [null, 2], per: frame}\n",
            "s.yaml:4:45: at features > b > shape: a sequence cannot have shape [null, n]. "
            "Write [] for any number.",
        ),
        (
            "sequence: {group: v, order: f}\nevery_column: true\nfeatures:\n" + FRAMES,
            "s.yaml:2:15: at every_column: cannot be combined with sequence. Declare the features.",
        ),
        (
            "sequence: {group: v}\nfeatures:\n" + FRAMES,
            "s.yaml:1:11: at sequence > order: the key 'order' is missing",
        ),
        (
            "sequence: {group: v, order: f, ordr: g}\nfeatures:\n" + FRAMES,
            "s.yaml:1:32: at sequence > ordr: unknown key 'ordr' (did you mean 'order'?); "
            "available: group, order, record",
        ),
        (
            "sequence: {group: v, order: f}\nfeatures:\n  a: {kind: bytes, from: key, per: fram}\n",
            "s.yaml:3:36: at features > a > per: expected 'record' or 'frame', got 'fram' (did "
            "you mean 'frame'?)",
        ),
    ],
)
def test_errors_are_reported_with_their_location(text, message):
    with pytest.raises(UsageError) as raised:
        parsed(text)
    assert str(raised.value) == message


def test_tensorflow_metadata_distinguishes_frames():
    schema = parsed(
        "sequence: {group: v, order: f}\nfeatures:\n"
        "  id: {kind: bytes, from: key}\n"
        "  pose: {kind: float, from: 'column:pose', shape: [2, 3], per: frame}\n"
        "  marks: {kind: int64, from: 'column:marks', shape: [], per: frame}\n"
        "  label: {kind: int64, from: 'column:l', classes: true, per: frame}\n"
    )
    text = schema_text(ResolvedSchema(schema, {"label": ("cat", "dog")}))
    stated = text_format.Parse(text, schema_pb2.Schema())
    assert [(f.name, f.type) for f in stated.feature] == [
        ("id", schema_pb2.BYTES),
        ("##SEQUENCE##", schema_pb2.STRUCT),
    ]
    frames = stated.feature[1].struct_domain.feature
    counts = {f.name: (f.value_count.min, f.value_count.max) for f in frames}
    assert counts == {"label": (1, 1), "marks": (0, 0), "pose": (6, 6)}
    assert frames[0].int_domain == schema_pb2.IntDomain(min=0, max=1, is_categorical=True)


SCHEMA = parsed(
    "sequence: {group: clip, order: at}\nfeatures:\n"
    "  id: {kind: bytes, from: key}\n"
    "  label: {kind: int64, from: 'column:label', classes: true}\n"
    "  image: {kind: bytes, from: 'image:bytes', per: frame}\n"
    "  row: {kind: bytes, from: key, per: frame}\n"
)
RESOLVED = ResolvedSchema(SCHEMA, {"label": ("cat", "dog")})


def binding(**options) -> Binding:
    return Binding(RESOLVED, {"clip": "video"}, **options)


def row(line: int = 2, is_text: bool = True, **values) -> Row:
    given = {"image": f"{line}.jpg", "video": "a", "at": "1", "label": "dog", **values}
    return Row(given, "/d/t.csv", line, is_text=is_text)


@pytest.mark.parametrize(
    ("at", "is_text", "order"),
    [
        ("7", True, "7"),
        (" f9 ", True, "f9"),
        (7, False, "7"),
        (0.25, False, "0.25"),
        (1e22, False, "1e+22"),
        ("007", False, "007"),
    ],
)
def test_a_row_is_bound_to_its_sequence_and_order(at, is_text, order):
    ref = bind(row(at=at, is_text=is_text), binding())
    assert ref.frame == ("a", order, "", "")
    assert type(ref.frame) is tuple
    assert (ref.key, ref.record_key) == ("2.jpg", "a")
    assert ref.values == (b"a", 1, None, b"2.jpg")
    assert ImageRefCoder().decode(ImageRefCoder().encode(ref)) == ref


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"at": ""}, Reason.MISSING_VALUE),
        ({"at": None}, Reason.MISSING_VALUE),
        ({"at": True, "is_text": False}, Reason.WRONG_TYPE),
        ({"at": float("nan"), "is_text": False}, Reason.WRONG_TYPE),
        ({"label": "cow"}, Reason.UNKNOWN_LABEL),
        ({"image": ""}, Reason.MISSING_VALUE),
    ],
)
def test_an_invalid_row_breaks_its_sequence(values, reason):
    bad = row(**values)
    with pytest.raises(RecordError) as raised:
        bind(bad, binding())
    assert raised.value.reason is reason
    frame = broken_frame(bad, binding(), raised.value)
    assert frame is not None
    assert frame.frame == ("a", "", reason.value, raised.value.detail)
    assert (frame.record_key, frame.values) == ("a", ())


@pytest.mark.parametrize("video", ["", None, 1.5])
def test_an_invalid_row_of_an_unknown_sequence_breaks_none(video):
    bad = row(video=video, is_text=False)
    with pytest.raises(RecordError, match="column 'video'"):
        identity_of(bad, binding())
    error = RecordError(Reason.MISSING_VALUE, "empty")
    assert broken_frame(bad, binding(), error) is None


def test_other_schemas_have_no_sequences():
    plain = Binding(ResolvedSchema(preset("image_classification")), {})
    assert bind(row(label=1, is_text=False), plain).frame is None
    assert broken_frame(row(), plain, RecordError(Reason.CORRUPT, "x")) is None


def test_rows_of_a_sequence_need_one_split_and_one_group():
    asked = binding(split_column="split", group_column="place")

    def frames(*spans):
        rows = [row(line, split=s, place=p) for line, (s, p) in enumerate(spans, start=2)]
        return [bind(each, asked) for each in rows]

    whole = frames(("test", "p"), ("test", "p"))
    assert list(in_one_split(whole, "split", "place")) == whole
    torn = frames(("train", "p"), ("test", "q"), ("test", "p"))
    one, other = "'split' is 'test', 'place' is 'p'", "'split' is 'test', 'place' is 'q'"
    why = f"{one} in one row, and {other} in another"
    expected = [_spans_splits_reject(ref, why) for ref in torn]
    assert list(in_one_split(torn, "split", "place")) == expected
    [alone, _, _] = in_one_split(frames(("a", "p"), ("b", "p"), ("b", "p")), "split", None)
    assert "'split' is 'a' in one row, and 'split' is 'b' in another" in alone.detail


def analyzer(**options) -> Analyzer:
    config = ConvertConfig(
        inputs=("t.csv",),
        output="out",
        name="d",
        schema=SCHEMA,
        columns={"clip": "video"},
        splits={"train": 1, "test": 1},
        **options,
    )
    return Analyzer(config, SCHEMA, binding(), SplitRanges.from_weights(config.weights))


def test_the_analyze_pass_counts_invalid_rows_with_their_sequences():
    asked, analysis = analyzer(num_shards=2), Analysis()
    for each in (row(2, video="a"), row(3, video="b"), row(4, video="c", image="", label="cow")):
        analysis.add([each], asked)
    splits = [split_of(clip, asked.ranges, 0) for clip in "abc"]
    assert analysis.splits == {split: splits.count(split) for split in splits}
    plan = build_plan(analysis, asked, {})
    assert plan.rows == 3
    assert set(plan.shards) == set(splits)


def test_records_by_shard_are_sequences():
    asked = analyzer(records_per_shard=1)
    rows = [row(line, video="abcd"[line % 4]) for line in range(12)]
    assert len({found[:2] for found in row_positions(rows, asked)}) == 4


def sequence(key: str, labels: list[int], data: bytes) -> SerializedExample:
    refs = [
        ImageRef(
            f"{i}", "t.csv", i, "", None, None, (b"", label, None, b""), frame=(key, "", "", "")
        )
        for i, label in enumerate(labels)
    ]
    frames = tuple(BuiltFrame(ref, ()) for ref in refs)
    return SerializedExample(refs[0]._replace(key=key), data, "ab" * 32, frames=frames)


@pytest.mark.parametrize(
    ("per", "classes"), [("record", ["dog", "cat"]), ("frame", [["cat", "dog"], ["cat"]])]
)
def test_the_index_has_the_number_and_classes_of_frames(per, classes):
    features = dict(SCHEMA.features)
    features["label"] = features["label"].model_copy(update={"per": per})
    resolved = ResolvedSchema(SCHEMA.model_copy(update={"features": features}), RESOLVED.classes)
    handle = io.BytesIO()
    index = RecordIndex(handle, "train", 0, resolved)
    index.add([sequence("a", [1, 0, 1], b"12345"), sequence("b", [0], b"123")])
    index.close()
    table = pq.read_table(handle)
    assert table["key"].to_pylist() == ["a", "b"]
    assert table["frames"].to_pylist() == [3, 1]
    assert table["class"].to_pylist() == classes
    assert index_mismatch(table, "train", 0, [5, 3], [3, 1]) is None
    message = index_mismatch(table, "train", 0, [5, 3], [3, 2])
    assert message == "row 1: frames is 1, in the shard 2"


def test_only_manifests_of_sequences_have_frames():
    shard = {
        **dict.fromkeys(("file", "sha256", "index_file", "index_sha256"), "name"),
        **dict.fromkeys(("records", "bytes", "payload", "crc32c"), 2),
        "images": {},
    }
    split = {"rows": 5, "records": 2, "rejected": 1, "duplicates": 0}
    plain = SplitEntry.model_validate({**split, "rows": 3, "shards": [shard]})
    assert plain.converted == 2
    assert "frames" not in plain.model_dump_json()
    framed = SplitEntry.model_validate({**split, "frames": 4, "shards": [{**shard, "frames": 4}]})
    assert framed.converted == 4
    assert SplitEntry.model_validate_json(framed.model_dump_json()) == framed
    assert framed.shards == (ShardEntry.model_validate({**shard, "frames": 4}),)
