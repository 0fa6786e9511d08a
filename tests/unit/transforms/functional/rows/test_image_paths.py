"""Tests of joined image paths."""

from __future__ import annotations

import pytest

from recordmill.transforms.functional.rows.binding import resolve_path


@pytest.mark.parametrize(
    ("path", "table", "root", "expected"),
    [
        ("a.jpg", "/d/t.csv", None, "/d/a.jpg"),
        ("x/a.jpg", "d/t.csv", None, "d/x/a.jpg"),
        ("a.jpg", "t.csv", None, "a.jpg"),
        ("a.jpg", "/t.csv", None, "/a.jpg"),
        ("a.jpg", "gs://b/t.csv", None, "gs://b/a.jpg"),
        ("a.jpg", "gs://b/d/t.csv", "s3://c", "s3://c/a.jpg"),
        ("a.jpg", "/d/t.csv", "/root/", "/root/a.jpg"),
        ("a.jpg", "/d/t.csv", "", "a.jpg"),
        ("/abs/a.jpg", "/d/t.csv", "/root", "/abs/a.jpg"),
        ("gs://b/a.jpg", "/d/t.csv", "/root", "gs://b/a.jpg"),
        ("a b%20ü?#[1].jpg", "/d/t.csv", None, "/d/a b%20ü?#[1].jpg"),
        ("", "/d/t.csv", "/root", ""),
        ("file:///mnt/a%20b.jpg", "/d/t.csv", "/root", "/mnt/a b.jpg"),
        ("FILE://localhost/mnt/a.jpg", "s3://b/t.csv", None, "/mnt/a.jpg"),
        ("file:/mnt/a%2541.jpg", "/d/t.csv", None, "/mnt/a%41.jpg"),
        ("file://host/a.jpg", "/d/t.csv", None, "file://host/a.jpg"),
        ("file:a.jpg", "/d/t.csv", None, "/d/file:a.jpg"),
    ],
)
def test_paths(path, table, root, expected):
    assert resolve_path(path, table, root) == expected
