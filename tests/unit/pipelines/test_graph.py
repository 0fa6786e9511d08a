"""The steps of a conversion's graph, for the options that add some."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.convert import open_inputs, prepare
from recordmill.pipelines.graph import build
from recordmill.pipelines.options import config_of
from tests.images import jpeg

STEPS = [
    *("ListTables", "AnalyzeTables", "AnalyzeRows", "ReadTables"),
    *("BindRows", "AssignShards", "Rejects"),
    *("WriteShards", "VerifyShards", "FindDuplicateImages", "FindImageIssues"),
    *("WriteRejects", "AllFiles", "Reconcile", "Publish"),
]
"""The steps of a conversion without options."""

UNUSED = ["ListUnusedImages", "WithUnusedImages", "WriteUnmatchedImages"]
JOINED = ["ListLabels", "ReadLabels", "JoinLabels", "WriteUnmatchedLabels", "WriteUnmatchedImages"]


@pytest.mark.parametrize(
    ("options", "added", "left_out"),
    [
        ({}, [], []),
        ({"sample": "50%"}, ["FindSample", "AnalyzeSample"], []),
        ({"per_class": 3}, ["FindSample", "AnalyzeSample"], []),
        ({"rename": "cat=pet"}, [], []),
        ({"split_method": "exact"}, [], []),
        ({"split_method": "stratified"}, ["RejectDuplicateKeys"], []),
        ({"index": True}, ["IndexShards"], []),
        (
            {"group_column": "label", "split_column": "label"},
            ["CompareGroups", "RejectDuplicateKeys"],
            [],
        ),
        ({"deduplicate": "content"}, ["RejectDuplicateKeys", "DropDuplicates", "WriteDropped"], []),
        ({"near_duplicates": "drop"}, ["RejectDuplicateKeys", "DropSimilar", "WriteDropped"], []),
        ({"schema": "tabular"}, [], ["FindDuplicateImages", "FindImageIssues"]),
        (
            {"near_duplicates": "keep_together"},
            ["FindClusters", "KeepTogether", "KeepAnalyzedTogether"],
            [],
        ),
        ({"labels": "ages.csv", "join_on": "image"}, JOINED, ["AnalyzeTables"]),
        (
            {"list_unused_images": True, "image_root": "."},
            UNUSED,
            [],
        ),
        (
            {"list_unused_images": True, "image_root": ".", "where": "label == 'cat'"},
            [*UNUSED, "ReadAllTables", "WithRowsOutside"],
            [],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_steps_of_a_conversion(
    options: dict[str, object],
    added: list[str],
    left_out: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("image,label\na.jpg,cat\n")
    Path("ages.csv").write_text("image,age\na.jpg,3\n")
    config = config_of({"input": ["t.csv"], "output": "out", "name": "birds", **options})
    job = prepare(config, PipelineOptions([]), *open_inputs(config), dry_run=True)
    assert job is not None
    pipeline = beam.Pipeline()
    build(pipeline, job)
    steps = [part.full_label for part in pipeline._root_transform().parts]
    assert sorted(steps) == sorted({*STEPS, *added} - {*left_out})


@pytest.mark.parametrize(("table", "staged"), [("t.tar", False), ("t.tar.gz", True)])
def test_members_of_compressed_archives_are_staged(
    table: str, staged: bool, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / table, "w:gz" if staged else "w") as archive:
        for name, data in {"a.jpg": jpeg(), "a.cls": b"3"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    paths = {"input": [str(tmp_path / table)], "output": str(tmp_path / "out"), "name": "birds"}
    config = config_of(paths)
    job = prepare(config, PipelineOptions([]), *open_inputs(config), dry_run=True)
    assert job is not None
    assert job.stages_images is staged
