"""All findings of a run."""

from __future__ import annotations

from pathlib import Path

from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.schemas.findings import Finding
from recordmill.schemas.plan import SourceEntry
from tests.unit.pipelines.report.index_only import dataset


def test_what_was_noticed_before_rows_were_read_is_among_the_findings(tmp_path: Path) -> None:
    noticed = Finding(
        kind="units",
        severity="warning",
        text="https://host/a?sig=abc: boxes of row #1 are normalized",
    )
    source = SourceEntry(recognized=("a: read as b",), findings=(noticed,))
    manifest = dataset(tmp_path, {"train": [[(0, 1)]]}).manifest
    found = findings_of(Outcome(manifest.model_copy(update={"source": source})))
    assert [finding.line for finding in found[:2]] == [
        "a: read as b",
        "warning: https://host/a?sig=***: boxes of row #1 are normalized",
    ]


def test_missing_classes_are_those_that_each_split_could_have(tmp_path: Path) -> None:
    splits = {"test": [[(1, 0)]], "train": [[(0, 1), (0, 2), (1, 3), (2, 4)]]}
    found = findings_of(Outcome(dataset(tmp_path, splits).manifest))
    # The only cow can be in one split only.
    assert [finding.text for finding in found if "classes" in finding.text] == [
        "test lacks 1 of the 3 classes of 'label' (cat)",
        "3 of the 3 classes of 'label' occur fewer than 10 times (cow: 1, cat: 2, dog: 2)",
    ]
