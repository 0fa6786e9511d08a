"""Notes on rare classes, and on classes that differ from the base version."""

from __future__ import annotations

from collections import Counter
from typing import Any

from recordmill.pipelines.run.class_notes import class_drift_notes, rare_class_notes
from recordmill.schemas.dataset_info import class_drift
from recordmill.schemas.manifest import BaseEntry, ClassDrift, Manifest, SplitEntry
from recordmill.schemas.yaml_files import preset


def manifest(classes: dict[int, int], **options: Any) -> Manifest:
    split = SplitEntry(
        rows=1, records=1, rejected=0, duplicates=0, classes={"label": classes}, shards=()
    )
    return Manifest.model_construct(
        config=options,
        dataset_schema=preset("image_classification"),
        classes={"label": tuple("abcde")},
        splits={"train": split, "test": split},
    )


def test_the_rarest_classes_are_noted() -> None:
    assert rare_class_notes(manifest({0: 5, 1: 50})) == []
    assert rare_class_notes(manifest({0: 5, 1: 4})) == [
        "note: 1 of the 2 classes of 'label' occurs fewer than 10 times (b 8)"
    ]
    assert rare_class_notes(manifest({0: 4, 1: 1, 2: 3, 3: 2, 4: 0})) == [
        "note: 4 of the 5 classes of 'label' occur fewer than 10 times (b 2, d 4, c 6, …)"
    ]
    assert rare_class_notes(manifest({0: 1}, sample="1%")) == []


def test_classes_that_differ_from_the_base_are_noted_with_their_shares() -> None:
    old = Counter({"a": 500, "b": 400, "c": 100, "d": 5, "gone": 7})
    new = Counter({"a": 510, "b": 390, "c": 20, "d": 7, "x": 3, "y": 9, "z": 1, "w": 2})
    drift = class_drift(old, new)
    assert drift == ClassDrift(
        added=4,
        gone=1,
        changed=1,
        added_examples=("y", "x", "w", "z"),
        gone_examples=("gone",),
        changed_examples=(("c", 0.098814, 0.021231),),
    )
    made = manifest({0: 1}).model_copy(
        update={
            "base": BaseEntry(
                version="1.0.0",
                manifest_sha256="",
                kept={},
                new={},
                gone={},
                shards_unchanged=0,
                classes={"label": drift},
            )
        }
    )
    assert class_drift_notes(made) == [
        "note: classes of 'label' since base 1.0.0: 4 new (y, x, w, …); 1 gone (gone); "
        "1 with another share (c 9.9% → 2.1%)"
    ]


def test_a_difference_by_chance_or_of_all_classes_alike_is_none() -> None:
    old = Counter({"a": 1_000, "b": 10})
    assert class_drift(old, Counter({"a": 1_000, "b": 19})) == ClassDrift()
    assert class_drift(old, Counter({"a": 9_000, "b": 90})) == ClassDrift()
    assert class_drift(old, Counter({"a": 1_000, "b": 30})).changed == 1


def test_without_a_base_there_is_no_drift() -> None:
    made = manifest({0: 1}).model_copy(update={"base": None})
    assert class_drift_notes(made) == []
