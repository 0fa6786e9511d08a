"""Paths that are not UTF-8: usage errors for inputs, and escaped in run.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recordmill.pipelines.run.run_record import RunContext, _working_folder, finished_record
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.inputs.input_tables import probe_labels

ODD = os.fsdecode(b"d\xff")


def test_the_name_of_a_table_that_a_pattern_matches_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / f"{ODD}.csv").write_text("a\n1\n")
    config = ConvertConfig(
        inputs=("t.csv",),
        labels=str(tmp_path / "*.csv"),
        join_on="a",
        output=str(tmp_path),
        name="x",
        schema=preset("tabular"),
    )
    with pytest.raises(UsageError, match=r"is not valid UTF-8\. Rename the file"):
        probe_labels(config)


def test_run_json_is_written_for_any_bytes_in_folder_and_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ODD).mkdir()
    monkeypatch.chdir(tmp_path / ODD)
    context = RunContext.begin("DirectRunner", ("recordmill", "convert"))
    record = json.loads(finished_record(context, None, RecordmillError(f"{ODD}: gone")).to_json())
    assert record["folder"] == f"{tmp_path}/d\\xff"
    assert record["message"] == f"{ODD}: gone"
    (tmp_path / ODD).rmdir()
    assert _working_folder() == ""
