"""WriteLines: one JSON line per reject, and an empty file without rejects."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.reconcile_counts import WriteLines
from tests.beam.direct import direct_pipeline, plan

REJECTS = [
    Reject("새\n1.jpg", "/a/새\n1.jpg", "labels.csv:2", Reason.CORRUPT, 'a "quote"', "train"),
    Reject("", "", "labels.csv:3", Reason.MALFORMED_ROW, "detail"),
    Reject("\u2028", "", "labels.csv:4", Reason.TRUNCATED, "tab\t, NUL \0"),
]


@pytest.mark.parametrize("repeat", [0, 2])
def test_each_reject_is_one_json_line(repeat: int, tmp_path: Path) -> None:
    path = tmp_path / "rejects" / "rejects-00000-of-00001.jsonl"
    with direct_pipeline(bundle_repeat=repeat) as p:
        parts = (p | "Some" >> beam.Create(REJECTS[:1]), p | "Others" >> beam.Create(REJECTS[1:]))
        files = parts | WriteLines(str(tmp_path), "rejects", p | "Plan" >> beam.Create([plan(3)]))
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


def test_the_file_is_empty_without_rejects(tmp_path: Path) -> None:
    with direct_pipeline() as p:
        nothing = (p | "None" >> beam.Create([]),)
        _ = nothing | WriteLines(str(tmp_path), "rejects", p | "Plan" >> beam.Create([plan(0)]))
    (path,) = (tmp_path / "rejects").iterdir()
    assert (path.name, path.read_bytes()) == ("rejects-00000-of-00001.jsonl", b"")
