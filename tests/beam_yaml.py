"""Runs the pipeline in YAML of docs/how-to/beam.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import tensorflow as tf
from apache_beam.yaml import main

import recordmill
from tests.docs.pages import DOCS, blocks


class Written(NamedTuple):
    """The results of the pipeline."""

    records: list[bytes]
    verified: int  # records of all files; engines distribute them between files
    rejects: list[str]


def run_yaml(caplog: pytest.LogCaptureFixture, *flags: str) -> Written:
    """Runs the pipeline in the working folder, which has `labels.csv`, and reads what it wrote."""
    (pipeline,) = blocks(DOCS / "how-to" / "beam.md", "yaml")
    Path("pipeline.yaml").write_text(pipeline)
    folder = {"recordmill": str(Path(recordmill.__file__).parent)}
    for earlier in (*Path().glob("from_yaml-*"), *Path().glob("rejects_of_yaml-*")):
        earlier.unlink()
    caplog.clear()
    with caplog.at_level("INFO"):
        main.run(
            [
                "--yaml_pipeline_file=pipeline.yaml",
                f"--jinja_variables={json.dumps(folder)}",
                *flags,
            ]
        )
    logged = (line.getMessage() for line in caplog.records)
    rows = [json.loads(line) for line in logged if line.startswith('{"path": ')]
    files = sorted(map(str, Path().glob("from_yaml-*")))
    assert sorted(row["path"] for row in rows) == files
    lines = "".join(path.read_text() for path in Path().glob("rejects_of_yaml-*"))
    return Written(
        sorted(tf.data.TFRecordDataset(files).as_numpy_iterator()),
        sum(row["records"] for row in rows),
        sorted(lines.splitlines()),
    )
