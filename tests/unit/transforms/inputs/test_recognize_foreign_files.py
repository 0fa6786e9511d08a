"""Tests of files that are not tables: each is named for what it is, with a remedy."""

from __future__ import annotations

import io
import pickle
import sqlite3
import zipfile

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.inputs.recognize import _describe

HEAD = 64


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as stream:
        stream.writestr("xl/workbook.xml", "<workbook/>")
    return data.getvalue()


def image() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (2, 2)).save(data, "jpeg")
    return data.getvalue()


def array() -> bytes:
    data = io.BytesIO()
    np.save(data, np.zeros(3))
    return data.getvalue()


def database(path) -> bytes:
    connection = sqlite3.connect(path)
    connection.execute("create table t (x)")
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("labels.xlsx", archive(), "an Excel workbook. Save the sheet as CSV"),
        ("LABELS.XLSX", archive(), "an Excel workbook."),
        ("labels.ods", archive(), "an OpenDocument spreadsheet."),
        (
            "my photos.zip",
            archive(),
            "an archive. Unpack it, as with python -m zipfile -e 'my photos.zip' 'my photos', "
            "and set --input to the table or the folder in it.",
        ),
        ("labels.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook."),
        ("photo.jpg", image(), "an image. Name its folder"),
        ("labels.npy", array(), "a NumPy array."),
        ("labels.pkl", pickle.dumps({"a": 1}), "a Python pickle."),
        ("labels.txt", b"a.jpg 1\n", "a text file. Set --input_format csv, with --delimiter"),
        (
            "val.txt",
            b"a.jpg 1\n",
            "a text file. Set --input_format csv, with --delimiter and --header "
            "where they differ: here, --delimiter ' ' --header image,label.",
        ),
        (
            "val.txt",
            b"a.jpg\t1\nb.jpg\t2\n",
            "a text file. Set --input_format csv, with --delimiter "
            "and --header where they differ: here, --delimiter tab --header image,label.",
        ),
        (
            "val.txt",
            b"a 1\n",
            "a text file. Set --input_format csv, with --delimiter and --header where they differ.",
        ),
        ("labels", b"a,b\n", ""),
        ("labels.foo", b"\x00\x01", ""),
        ("labels.foo", b"", ""),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),  # a zip has its time
)
def test_what_a_file_is(name, data, expected):
    found = _describe(name, data[:HEAD])
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_a_database(tmp_path):
    data = database(tmp_path / "t.db")
    assert _describe("t.db", data[:HEAD]).startswith("an SQLite database.")


def test_a_table_of_labels_is_named_as_there_is_no_option_for_its_format():
    assert _describe("labels.txt", b"a 1\n", is_input=False) == (
        "a text file. Name it .csv, with --delimiter and --header where they differ."
    )
