"""Rows and references: source locations and pickling."""

from __future__ import annotations

import pickle

import pytest

from recordmill.schemas.records import ImageRef, Row, SerializedExample, StoredImage

ROW = Row({"a": "1"}, "d/t,1.csv", 17, is_text=True)
REF = ImageRef(
    key="k", uri="/d/a.jpg", start=5, stop=9, values=(1, [b"x"], None), file="t.csv", line=3
)

STORED = StoredImage(
    data=b"x",
    format="png",
    height=1,
    width=2,
    channels=3,
    sha256="ab",
    source_format="gif",
    mode="P",
    bit_depth=8,
    frames=2,
    orientation=1,
    transcoded=1,
    treatment="gif to png",
)


@pytest.mark.parametrize(("record", "source"), [(ROW, "d/t,1.csv:17"), (REF, "t.csv:3")])
def test_source_is_file_and_line(record, source):
    assert record.source == source


@pytest.mark.parametrize(
    "record",
    [ROW, REF, STORED, SerializedExample(REF, b"x", "")],
    ids=lambda record: type(record).__name__,
)
def test_pickles(record):
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301


@pytest.mark.parametrize("record", [ROW, REF], ids=lambda record: type(record).__name__)
def test_cannot_be_changed(record):
    with pytest.raises(AttributeError):
        record.line = 4


def test_a_reference_has_no_split_and_group_by_default():
    assert (REF.split, REF.group) == ("", "")
