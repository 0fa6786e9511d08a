"""Tests of the record index, against files written by TensorFlow."""

from __future__ import annotations

import io
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import (
    BuiltFrame,
    ImageRef,
    ImageShape,
    SerializedExample,
)
from recordmill.schemas.settings import SequenceSettings
from recordmill.transforms.functional.records.image_columns import IMAGE_COLUMNS, describe
from recordmill.transforms.functional.records.index import (
    BATCH_ROWS,
    RecordIndex,
    arrow_schema,
    index_lines,
    index_mismatch,
    label_ids,
    row_class,
)

IMAGE = Feature(kind="bytes", sources="image:bytes")
SHAPES = [
    ImageShape("jpeg", 640, 480, 3, 999, bytes(range(256)) * 16),
    ImageShape("png", 30, 20, 1, 9, bytes(64 * 64)),
    ImageShape("jpeg", 64, 48, 3, 99),
]
LABEL = Feature(kind="int64", sources="column:label", classes=True)
LABELS = Feature(kind="int64", sources="column:labels", shape=(), classes=True)
NUMBER = Feature(kind="int64", sources="column:n")
NAMED = ResolvedSchema(Schema(features={"n": NUMBER, "label": LABEL}), {"label": ("cat", "dog")})
NUMBERED = ResolvedSchema(Schema(features={"n": NUMBER, "label": LABEL}), {"label": ()})
LISTED = ResolvedSchema(Schema(features={"labels": LABELS}), {"labels": ("cat", "dog")})
PLAIN = ResolvedSchema(Schema(features={"n": NUMBER}), {})

COLUMNS = [
    ("key", pa.string()),
    ("split", pa.string()),
    ("shard", pa.int32()),
    ("index", pa.int64()),
    ("offset", pa.int64()),
    ("length", pa.int64()),
    ("sha256", pa.string()),
]


def example(key, data, values, sha256=""):
    ref = ImageRef(key=key, uri="", start=None, stop=None, values=values, file="t.csv", line=1)
    return SerializedExample(ref, data, sha256)


def index_of(examples, resolved, split="train", shard=3):
    return written_index(examples, resolved, split, shard).read()


def written_index(examples, resolved, split="train", shard=3):
    handle = io.BytesIO()
    index = RecordIndex(handle, split, shard, resolved)
    index.add(examples)
    index.close()
    assert not handle.closed
    return pq.ParquetFile(io.BytesIO(handle.getvalue()))


@pytest.mark.parametrize(
    ("resolved", "type_"),
    [
        (NAMED, pa.string()),
        (NUMBERED, pa.string()),
        (PLAIN, pa.string()),
        (LISTED, pa.list_(pa.string())),
    ],
    ids=["named", "numbered", "plain", "listed"],
)
def test_columns(resolved, type_):
    assert arrow_schema(resolved) == pa.schema([*COLUMNS, ("class", type_)])


def test_rows_of_an_index():
    examples = [
        example("a,b\u2028\n.jpg", b"12345", (7, 1), "ab" * 32),
        example("🐈", b"", (8, 0)),
        example("", b"x" * 300, (9, []), "cd" * 32),
    ]
    table = index_of(examples, NAMED)
    assert table.schema.equals(arrow_schema(NAMED))
    rest = {"split": "train", "shard": 3}
    assert table.to_pylist() == [
        {
            **{"key": "a,b\u2028\n.jpg", **rest, "index": 0, "offset": 12, "length": 5},
            **{"sha256": "ab" * 32, "class": "dog"},
        },
        {
            **{"key": "🐈", **rest, "index": 1, "offset": 12 + 5 + 16, "length": 0},
            **{"sha256": None, "class": "cat"},
        },
        {
            **{"key": "", **rest, "index": 2, "offset": 12 + 5 + 16 + 16, "length": 300},
            **{"sha256": "cd" * 32, "class": None},
        },
    ]


def test_images_are_described():
    resolved = ResolvedSchema(Schema(features={"image": IMAGE}), {})
    rows = [example(str(i), b"1", (None,))._replace(shape=SHAPES[i % 3]) for i in range(300)]
    table = index_of(rows, resolved)
    assert table.schema.equals(arrow_schema(resolved))
    described = describe([SHAPES[i % 3] for i in range(300)]).to_pylist()
    assert table.select(IMAGE_COLUMNS.names).to_pylist() == described


def test_images_of_sequences_are_described_by_lists():
    frame = IMAGE.model_copy(update={"per": "frame"})
    sequence = SequenceSettings(group="video", order="frame")
    resolved = ResolvedSchema(Schema(features={"image": frame}, sequence=sequence), {})
    video = example("v", b"1", ())
    frames = [BuiltFrame(video.ref, (), shape=shape) for shape in SHAPES]
    videos = [video._replace(frames=(frames[0], frames[1])), video._replace(frames=(frames[2],))]
    table = index_of(videos, resolved)
    assert table.schema.equals(arrow_schema(resolved))
    one, two, three = describe(list(SHAPES)).to_pylist()
    assert table.select(IMAGE_COLUMNS.names).to_pylist() == [
        {name: [one[name], two[name]] for name in one},
        {name: [value] for name, value in three.items()},
    ]


def test_byte_ranges_match_a_file_written_by_tensorflow(tmp_path):
    records = [b"one", b"", b"three" * 100, bytes(range(256))]
    path = str(tmp_path / "shard.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    table = index_of([example(str(i), r, (0,)) for i, r in enumerate(records)], PLAIN)
    data = (tmp_path / "shard.tfrecord").read_bytes()
    cut = [data[row["offset"] : row["offset"] + row["length"]] for row in table.to_pylist()]
    assert cut == records


def test_an_index_without_records_has_its_columns():
    table = index_of([], LISTED)
    assert (table.num_rows, table.schema.equals(arrow_schema(LISTED))) == (0, True)


def test_an_index_of_several_batches():
    count = 2 * BATCH_ROWS + 1
    written = written_index([example(str(i), b"123", (i, 0)) for i in range(count)], NAMED)
    assert written.num_row_groups == 3  # no more than a batch of rows is kept in memory
    table = written.read()
    assert table["key"].to_pylist() == [str(i) for i in range(count)]
    assert table["index"].to_pylist() == list(range(count))
    assert table["offset"].to_pylist() == [12 + 19 * i for i in range(count)]


def test_row_groups_do_not_depend_on_how_records_are_batched():
    def written(*parts):
        handle = io.BytesIO()
        index = RecordIndex(handle, "train", 0, NAMED)
        for part in parts:
            index.add(part)
        index.close()
        return handle.getvalue()

    records = [example(str(i), b"123", (i, i % 2)) for i in range(2 * BATCH_ROWS + 1)]
    some, others = records[: BATCH_ROWS - 7], records[BATCH_ROWS - 7 :]
    assert written(some, others) == written(records) == written(*([each] for each in records))


def test_equal_records_give_equal_indexes():
    def written():
        handle = io.BytesIO()
        index = RecordIndex(handle, "train", 0, NAMED)
        index.add([example("a", b"1", (7, 1))])
        index.close()
        return handle.getvalue()

    assert written() == written()


@pytest.mark.parametrize(
    ("values", "resolved", "expected"),
    [
        ((7, 1), NAMED, "dog"),
        ((7, 0), NAMED, "cat"),
        ((7, []), NAMED, None),
        ((7, 5), NUMBERED, "5"),
        ((7, -1), NUMBERED, "-1"),
        (([1, 0],), LISTED, ["dog", "cat"]),
        (([],), LISTED, []),
        ((7,), PLAIN, None),
    ],
    ids=str,
)
def test_class_of(values, resolved, expected):
    assert row_class(values, resolved) == expected


LABEL = Feature.model_validate({"kind": "int64", "from": "column:a", "classes": True})


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, [3]), (0, [0]), ([1, 1], [1, 1]), ([], []), (None, [])],
    ids=str,
)
def test_labels_of(value, expected):
    assert label_ids(value, LABEL) == expected


def test_no_label_is_not_a_class_id():
    optional = LABEL.model_copy(update={"default": -1})
    assert label_ids(-1, optional) == []
    assert label_ids(0, optional) == [0]
    assert label_ids(-1, LABEL) == [-1]  # without classes by name, any integer is a label


RECORDS = [b"12345", b"", b"123"]
INDEX = index_of([example(str(i), r, (i,)) for i, r in enumerate(RECORDS)], PLAIN)


def changed(column, values):
    at = INDEX.schema.get_field_index(column)
    return INDEX.set_column(
        at, INDEX.schema.field(at), pa.array(values, INDEX.schema.field(at).type)
    )


@pytest.mark.parametrize(
    ("table", "lengths", "expected"),
    [
        pytest.param(INDEX, [5, 0, 3], None, id="fits"),
        pytest.param(INDEX, [5, 0], "3 rows; the shard has 2 records", id="a row too many"),
        pytest.param(INDEX, [5, 0, 3, 1], "3 rows; the shard has 4 records", id="a row too few"),
        pytest.param(INDEX, [5, 1, 3], "row 1: length is 0, in the shard 1", id="other length"),
        pytest.param(
            changed("split", ["train", "train", "test"]),
            [5, 0, 3],
            "row 2: split is 'test', in the shard 'train'",
            id="split",
        ),
        pytest.param(
            changed("shard", [3, 2, 3]), [5, 0, 3], "row 1: shard is 2, in the shard 3", id="shard"
        ),
        pytest.param(
            changed("index", [1, 0, 2]), [5, 0, 3], "row 0: index is 1, in the shard 0", id="index"
        ),
        pytest.param(
            changed("length", [5, 0, None]),
            [5, 0, 3],
            "row 2: length is None, in the shard 3",
            id="length",
        ),
        pytest.param(
            changed("offset", [12, 33, 48]),
            [5, 0, 3],
            "row 2: offset is 48, in the shard 49",
            id="offset",
        ),
    ],
)
def test_mismatches(table, lengths, expected):
    assert index_mismatch(table, "train", 3, lengths) == expected


def test_an_empty_index_matches_an_empty_shard():
    assert index_mismatch(index_of([], PLAIN), "train", 3, []) is None


def test_index_lines_are_those_of_the_frames_that_tensorflow_wrote(tmp_path):
    records = [b"one", b"", b"three" * 100]
    path = str(tmp_path / "shard.tfrecord")
    ends = []
    for count in range(len(records) + 1):
        with tf.io.TFRecordWriter(path) as writer:
            for record in records[:count]:
                writer.write(record)
        ends.append((tmp_path / "shard.tfrecord").stat().st_size)
    table = index_of([example(str(i), r, (0,)) for i, r in enumerate(records)], PLAIN)
    expected = [f"{a} {b - a}" for a, b in pairwise(ends)]
    assert index_lines(table).decode().splitlines() == expected
    assert index_lines(index_of([], PLAIN)) == b""
