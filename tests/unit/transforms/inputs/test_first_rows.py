"""A run stops before the conversion if the images of its first rows are all rejected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import open_inputs, prepare, run
from recordmill.pipelines.graph import projection_of
from recordmill.pipelines.options import config_of
from recordmill.pipelines.run.startup import Interrupt
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.rejects import Reject
from recordmill.transforms.inputs import first_rows
from recordmill.transforms.inputs.first_rows import first_rejects
from tests.images import jpeg


def config(folder: Path, names: Sequence[str], **options: object) -> ConvertConfig:
    """Draws a.jpg and b.jpg and a damaged one; returns the config for a table with images."""
    (folder / "a.jpg").write_bytes(jpeg(8, 6, 1))
    (folder / "broken.jpg").write_bytes(jpeg(64, 48, 2)[:-500])
    lines = "".join(f"{name},cat\n" for name in names)
    (folder / "t.csv").write_text(f"image,label\n{lines}")
    paths = {"input": [str(folder / "t.csv")], "output": str(folder / "out"), "name": "birds"}
    return config_of({**paths, "report": False, **options})


def rejected(made: ConvertConfig) -> list[Reject]:
    """Returns the rejects of the first rows."""
    job = prepare(made, PipelineOptions([]), *open_inputs(made), dry_run=True)
    assert job is not None
    projection = projection_of(job.analyzer.schema, made)
    return first_rejects(job.tables.files, projection, job.analyzer.binding, made)


@pytest.mark.parametrize(
    ("names", "rows", "reasons"),
    [
        (["x.jpg", "broken.jpg", "", "a.jpg"], 3, ["missing_file", "truncated", "missing_value"]),
        (["x.jpg", "broken.jpg", "", "a.jpg"], 4, []),
        (["x.jpg", "broken.jpg"], 3, []),
        (["x.jpg"] * 40, 40, ["missing_file"] * 40),
        (["x.jpg"] * 40, 0, []),
        (["a.jpg", "x.jpg"], 1, []),
    ],
    ids=["all", "one good", "too few", "many", "off", "first good"],
)
def test_the_first_rows_are_rejected_only_together(
    names: list[str], rows: int, reasons: list[str], tmp_path: Path
) -> None:
    found = rejected(config(tmp_path, names, fail_fast=rows))
    assert [reject.reason.value for reject in found] == reasons
    lines = [int(reject.source.rpartition(":")[2]) for reject in found]
    assert lines == list(range(2, 2 + len(reasons)))


def test_a_good_table_costs_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, read_bytes = list[str](), first_rows.read_bytes
    monkeypatch.setattr(
        first_rows, "read_bytes", lambda uri, *span: read.append(uri) or read_bytes(uri, *span)
    )
    assert rejected(config(tmp_path, ["a.jpg"] * 100)) == []
    assert read == [f"{tmp_path}/a.jpg"]


def test_a_stopped_run_lists_its_rejects(tmp_path: Path) -> None:
    made = config(tmp_path, ["x.jpg", "broken.jpg", "y.jpg"], fail_fast=2, max_rejects="100%")
    options = PipelineOptions([])
    job = prepare(made, options, *open_inputs(made))
    assert job is not None
    record = run(job, options, Interrupt())
    dataset = tmp_path / "out/birds/1.0.0"
    assert (record.exit_code, record.state) == (4, "failed")
    assert record.message == (
        "stopped before the conversion: the images of the first 2 rows are all rejected "
        "(1 missing_file, 1 truncated):\n"
        f"  {tmp_path}/t.csv:2: missing_file: {tmp_path}/x.jpg: No such file or directory. Check "
        "the path and --image_root.\n"
        f"  {tmp_path}/t.csv:3: truncated: the file ends before its end-of-image marker. Replace "
        "the file with an intact copy.\n"
        f"Each is in {dataset}/rejects with its reason. Fix them, or set --fail_fast 0 to try all "
        "rows."
    )
    lines = (dataset / "rejects/rejects-00000-of-00001.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["missing_file", "truncated"]
    assert json.loads((dataset / "run.json").read_bytes())["exit_code"] == 4


def test_an_image_root_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(UsageError) as caught:
        rejected(config(tmp_path, ["a.jpg"], image_root=f"{tmp_path}/imagse"))
    assert str(caught.value) == (
        f"--image_root {tmp_path}/imagse: no such folder (did you mean '{tmp_path}/images'?). "
        "Check the path."
    )
