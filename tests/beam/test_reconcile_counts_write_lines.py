"""WriteLines: one JSON line per reject, and no file without rejects."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.reconcile_counts import WriteLines
from tests.beam.direct import direct_pipeline

REJECTS = [
    Reject("새\n1.jpg", "/a/새\n1.jpg", "labels.csv:2", Reason.CORRUPT, 'a "quote"', "train"),
    Reject("", "", "labels.csv:3", Reason.MALFORMED_ROW, "detail"),
    Reject("\u2028", "", "labels.csv:4", Reason.TRUNCATED, "tab\t, NUL \0"),
]


@pytest.mark.parametrize("repeat", [0, 2])
def test_each_reject_is_one_json_line(repeat: int, tmp_path: Path) -> None:
    path = tmp_path / "rejects" / "rejects-00000-of-00001.jsonl"
    with direct_pipeline(bundle_repeat=repeat) as p:
        files = p | beam.Create(REJECTS) | WriteLines(str(tmp_path), "rejects")
        if not repeat:
            assert_that(files, equal_to([str(path)]))
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    expected = [
        {
            "key": reject.key,
            "uri": reject.uri,
            "source": reject.source,
            "reason": reject.reason.value,
            "detail": reject.detail,
        }
        for reject in REJECTS
    ]
    assert sorted(map(json.loads, lines), key=lambda line: line["source"]) == expected
    assert [file for file in path.parent.rglob("*") if file.is_file()] == [path]


def test_there_is_no_file_without_rejects(tmp_path: Path) -> None:
    with direct_pipeline() as p:
        assert_that(p | beam.Create([]) | WriteLines(str(tmp_path), "rejects"), equal_to([]))
    assert not any(tmp_path.iterdir())
