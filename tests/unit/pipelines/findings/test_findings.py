"""All findings of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill.pipelines.findings import Outcome, _base_version, findings_of
from recordmill.schemas.findings import Finding
from recordmill.schemas.manifest import BaseEntry
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


@pytest.mark.parametrize(
    ("append", "unchanged", "on_conflict", "counts", "text"),
    [
        ("forget", 1, "fail", (3, 0, 1), "3 records kept, 0 new, 1 gone"),
        (False, 2, "fail", (3, 2, 0), "3 records kept, 2 new, 0 gone"),
        (False, 1, "fail", (3, 2, 1), "3 records kept or changed, 2 new, 1 gone"),
        (True, 1, "fail", (3, 2, 0), "3 records kept, 2 new, 0 gone"),
        (True, 1, "update", (3, 2, 1), "3 records kept, 1 new, 1 changed, 0 gone"),
        (True, 1, "update", (3, 2, 0), "3 records kept, 2 new, 0 gone"),
    ],
)
def test_records_of_the_base_that_may_have_changed_are_not_called_kept(
    append: bool | str, unchanged: int, on_conflict: str, counts: tuple[int, int, int], text: str
) -> None:
    kept, new, gone = ({"train": number} for number in counts)
    base = BaseEntry.model_construct(
        version="1.0.0", kept=kept, new=new, gone=gone, shards_unchanged=unchanged
    )
    shards = [SimpleNamespace(records=number) for number in (1, 2, 2)]
    manifest: Any = SimpleNamespace(
        base=base,
        config={"append": append is True, "on_conflict": on_conflict},
        sidecars={"removal.json": ""} if append == "forget" else {},
        splits={"train": SimpleNamespace(shards=shards)},
    )
    (found,) = _base_version(Outcome(manifest))
    assert found.text == (
        f"base 1.0.0: {text}; {unchanged} of 3 shards are unchanged (0 not even read)"
    )


def test_missing_classes_are_those_that_each_split_could_have(tmp_path: Path) -> None:
    splits = {"test": [[(1, 0)]], "train": [[(0, 1), (0, 2), (1, 3), (2, 4)]]}
    found = findings_of(Outcome(dataset(tmp_path, splits).manifest))
    # The only cow can be in one split only.
    assert [finding.text for finding in found if "classes" in finding.text] == [
        "test lacks 1 of the 2 classes of 'label' with a record for each split (cat)",
        "3 of the 3 classes of 'label' occur fewer than 10 times (cow: 1, cat: 2, dog: 2)",
    ]
