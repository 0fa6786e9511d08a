"""Tests of TFRecord files as a source: features, byte ranges of images, and damage."""

from __future__ import annotations

import gzip
import io
import re
import struct

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Items, Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import (
    IMAGES,
    DeclaredClasses,
    Part,
    Probe,
    Projection,
    TableFile,
)
from recordmill.transforms.functional.records.framing import _masked_crc32c
from recordmill.transforms.functional.sources import tfrecord
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS
from tests.images import jpeg, png

PATH = "d/birds-train.tfrecord-00000-of-00002"


def feature(values):
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features):
    made = {name: feature(v) if v else tf.train.Feature() for name, v in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def framed(*records):
    """Returns a TFRecord file in memory, with our CRC: the writer of TensorFlow needs a path."""
    out = b""
    for data in records:
        length = struct.pack("<Q", len(data))
        crcs = (struct.pack("<I", _masked_crc32c(part)) for part in (length, data))
        out += length + next(crcs) + data + next(crcs)
    return out


def read(data, projection=Projection(), path=PATH, gzipped=False):  # noqa: B008 - frozen
    split = Part(TableFile(path, "tfrecord", gzipped))
    return list(tfrecord.read(io.BufferedReader(io.BytesIO(data)), split, projection))


IMAGE = jpeg(9, 7, 1)
RECORD = example(
    image=[IMAGE],
    label=[-3],
    score=[0.5, -1.0],
    name=["Übermut".encode()],
    raw=[b"\xff"],
    none=[],
)


def test_features_are_columns_with_their_kinds():
    (row,) = read(framed(RECORD), Projection(("label", "score", "name", "raw", "none", "split")))
    assert row.values == {
        "label": Items([-3]),
        "score": [0.5, -1.0],
        "name": Items(["Übermut"]),
        "raw": Items([b"\xff"]),
        "none": Items(),
        "split": Items(["train"]),
    }
    assert [type(row.values[name]) for name in ("label", "score", "none")] == [Items, list, Items]
    assert (row.file, row.line, row.is_text, row.image) == (PATH, 1, False, None)


def test_the_image_is_its_exact_range():
    images = [IMAGE, png(5, 5, 2), b"", jpeg(30, 20, 3)]
    data = framed(*(example(image=[p], x=[i]) for i, p in enumerate(images)))
    rows = read(data, Projection(image="image"))
    assert [data[row.image.start : row.image.stop] for row in rows] == images
    assert [row.line for row in rows] == [1, 2, 3, 4]
    assert all("image" not in row.values for row in rows)


def test_a_path_is_a_path_and_no_image():
    (row,) = read(framed(example(image=["새/1.jpg".encode()])), Projection(image="image"))
    assert (row.values["image"], row.image) == (Items(["새/1.jpg"]), None)


def test_images_of_compressed_files_are_given_once():
    whole = read(framed(RECORD), Projection(image="image", pixels=True), gzipped=True)
    analysis = read(framed(RECORD), Projection(image="image"), gzipped=True)
    assert [row.image for row in whole] == [IMAGE]
    assert [row.image.stop - row.image.start for row in analysis] == [len(IMAGE)]


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4),
    st.lists(st.binary(max_size=20), min_size=1, max_size=4),
)


@settings(max_examples=100)
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_every_value_comes_back(features):
    made = {name: feature(values) for name, values in features.items()}
    record = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    (row,) = read(framed(record), path="x.tfrecord")
    found = {name: [_encoded(v) for v in values] for name, values in row.values.items()}
    assert found == features


def _encoded(value):
    return value.encode() if isinstance(value, str) else value


def test_damaged_data_is_one_reject_and_the_rest_is_read():
    data = bytearray(framed(RECORD, RECORD, RECORD))
    size = len(RECORD) + 16
    data[size + 40] ^= 1
    first, second, third = read(bytes(data))
    assert (first.line, third.line) == (1, 3)
    assert (second.source, second.reason) == (f"{PATH}:2", Reason.MALFORMED_ROW)
    assert second.detail == (
        f"record 1 at byte {size}: the checksum of the record's data does not match. Write the "
        "intact records to new files with recordmill verify --salvage DIR, or allow it with "
        "--max_rejects malformed_row=N."
    )


@pytest.mark.parametrize("at", [0, 9])
def test_a_damaged_length_ends_the_file(at):
    data = bytearray(framed(RECORD, RECORD, RECORD))
    size = len(RECORD) + 16
    data[size + at] ^= 1
    first, second = read(bytes(data))
    assert (first.line, second.source, second.reason) == (1, f"{PATH}:2", Reason.LOST_ROWS)
    assert f"record 1 at byte {size}: the checksum of the record's length" in second.detail
    assert second.detail.endswith("--salvage DIR; convert it with the others.")


def test_every_cut_is_a_reject_or_between_two_records():
    data, size = framed(RECORD, RECORD), len(RECORD) + 16
    for cut in range(len(data)):
        found = read(data[:cut])
        lost = [Reason.LOST_ROWS] * bool(cut % size)
        assert [None if isinstance(f, Row) else f.reason for f in found] == [None] * (
            cut // size
        ) + lost


def test_a_damaged_record_at_the_top_decides_nothing_for_the_others():
    whole = framed(example(a=[1]), example(a=[2], b=[b"x"]))
    damaged = bytes([*whole[:14], whole[14] ^ 1, *whole[15:]])
    assert probe(damaged) == probe(framed(example(a=[2], b=[b"x"])))
    assert [type(found) for found in read(damaged)] == [Reject, Row]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\xff\xff", r"is not a tf\.train\.Example"),
        (
            tf.train.SequenceExample(
                feature_lists=tf.train.FeatureLists(
                    feature_list={"f": tf.train.FeatureList(feature=[tf.train.Feature()])}
                )
            ).SerializeToString(),
            r"expected a tf\.train\.Example, got another message",
        ),
    ],
    ids=["no message", "SequenceExample"],
)
def test_records_that_are_not_examples_are_rejected(record, message):
    (reject,) = read(framed(record))
    assert re.match(rf"record 0 at byte 0: {message}", reject.detail)
    assert reject.detail.endswith(
        ". Fix the record, or allow it with --max_rejects malformed_row=N."
    )
    with pytest.raises(UsageError, match=rf"is not a TFRecord file of Examples: {message}"):
        probe(framed(record))


def test_a_pointer_in_place_of_records_is_named():
    with pytest.raises(UsageError, match=r"of Examples: Git LFS pointer\. Fetch"):
        probe(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")


def probe(data, path=PATH):
    return tfrecord.probe(io.BufferedReader(io.BytesIO(data)), TableFile(path, "tfrecord"))


def test_the_probe_returns_columns_and_image_columns():
    found = probe(framed(RECORD, example(more=[1])))
    assert set(found.columns) == {
        *("image", "label", "score", "name", "raw", "none", "more", "split")
    }
    assert found == Probe(
        found.columns,
        has_rows=True,
        unsupported={"image": IMAGES},
        embedded=frozenset({"image"}),
        classes={"label": DeclaredClasses((), unnamed="label", by_name=True)},
        splits=("train",),
        reads={"image": ("image",), "label": ("label", "")},
    )


def test_an_empty_shard_is_no_mistake():
    assert probe(b"") == Probe((), has_rows=False)
    assert read(b"") == []


def test_a_cut_gzip_stream_is_reported_after_what_came_before():
    data = gzip.compress(framed(*(example(x=[i], noise=[jpeg(200, 200, i)]) for i in range(9))))
    stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data[: len(data) // 2])))
    part = Part(TableFile("x.tfrecord.gz", "tfrecord", gzipped=True))
    *rows, last = tfrecord.read(stream, part, Projection())
    assert [row.values["x"] for row in rows] == [[i] for i in range(len(rows))]
    assert 0 < len(rows) < 9
    assert (last.source, last.reason) == (f"x.tfrecord.gz:{len(rows) + 1}", Reason.LOST_ROWS)
    assert "cannot be read" in last.detail


def test_a_record_of_too_many_values_is_rejected(monkeypatch):
    monkeypatch.setattr(tfrecord, "_MAX_VALUES", 5)
    stream = io.BytesIO(framed(example(a=[1, 2], b=[1.5, 2, 3]), example(a=[1, 2, 3], b=[1, 2, 3])))
    part = Part(TableFile("x", "tfrecord"))
    row, reject = tfrecord.read(stream, part, Projection(("a",)))
    assert row.values == {"a": [1, 2]}
    assert reject.detail.startswith(
        "record 1 at byte 54: expected at most 5 values in a record, got more. "
    )


@pytest.mark.parametrize(
    ("largest", "columns", "detail"),
    [
        (2.0, BOX_COLUMNS, ""),
        (50.0, BOX_COLUMNS[:4], ""),  # as with units_column=none
        (50.0, BOX_COLUMNS, "boxes: expected fractions of the image, got 50; for pixels, set "),
    ],
)
def test_boxes_in_pixels_are_no_fractions(largest, columns, detail):
    sides = {"xmin": 0.0, "ymin": 0.0, "xmax": 0.5, "ymax": largest}
    boxes = {f"image/object/bbox/{side}": [value] for side, value in sides.items()}
    record = example(**{"image/encoded": [IMAGE], **boxes})
    (row,) = read(framed(record), Projection(columns))
    if detail:
        assert f"{detail}--boxes units=pixel,units_column=none. Fix the record" in row.detail
    else:
        assert row.values["ymax"] == [largest]
