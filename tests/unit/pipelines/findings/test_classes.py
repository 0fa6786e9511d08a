"""Notes on rare classes, and on classes that differ from the base version."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill.pipelines.findings import (
    Outcome,
    _class_drift,
    _class_names,
    _class_sizes,
    _doubtful_labels,
)
from recordmill.pipelines.label_findings import class_names
from recordmill.schemas import dataset_info
from recordmill.schemas.findings import lines
from recordmill.schemas.manifest import BaseEntry, ClassDrift, Manifest, SplitEntry
from recordmill.schemas.plan import SourceEntry
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.feature_values import _sorted_class_names


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


def rare(made: Manifest) -> list[str]:
    """Returns the lines on rare classes."""
    return list(lines(f for f in _class_sizes(Outcome(made)) if f.kind == "rare_classes"))


def test_the_rarest_classes_are_noted() -> None:
    assert rare(manifest({0: 5, 1: 50})) == []
    assert rare(manifest({0: 5, 1: 4})) == [
        "note: 1 of the 5 classes of 'label' occurs fewer than 10 times (b: 8)"
    ]
    assert rare(manifest({0: 4, 1: 1, 2: 3, 3: 2, 4: 0})) == [
        "note: 4 of the 5 classes of 'label' occur fewer than 10 times (b: 2, d: 4, c: 6, …)"
    ]
    assert rare(manifest({0: 1}, sample="1%")) == []


def test_absent_classes_are_only_named_if_there_are_records() -> None:
    made = manifest({0: 50})
    none = made.splits["train"].model_copy(update={"records": 0})
    failed = made.model_copy(update={"splits": {"train": none}})
    kinds = [[f.kind for f in _class_sizes(Outcome(each))] for each in (failed, made)]
    assert kinds == [[], ["absent_classes"]]
    (hint,) = (found.hint for found in _class_sizes(Outcome(made)))
    assert hint == "--classes FILE with the others leaves them out"


@pytest.mark.parametrize("first_label", [0, 1])
@pytest.mark.parametrize("offset", [0, 1])
def test_ids_that_count_from_1_may_be_why_the_first_class_is_absent(
    offset: int, first_label: int
) -> None:
    made = manifest(dict.fromkeys(range(offset + 1, 5), 50))
    label = made.dataset_schema.features["label"].model_copy(
        update={"label_offset": offset, "first_label": first_label}
    )
    features = {**made.dataset_schema.features, "label": label}
    schema = made.dataset_schema.model_copy(update={"features": features})
    named = made.model_copy(update={"dataset_schema": schema, "config": {"classes": ["a"]}})
    (found,) = _class_sizes(Outcome(named))
    assert found.hint == (
        "if labels are ids from 1, set --first_label 1; otherwise, " * (not first_label)
        + "--classes FILE with the others leaves them out"
    )


def test_a_background_needs_no_record() -> None:
    made = manifest({1: 50})
    label = made.dataset_schema.features["label"].model_copy(update={"label_offset": 1})
    schema = made.dataset_schema.model_copy(
        update={"features": {**made.dataset_schema.features, "label": label}}
    )
    offset = made.model_copy(update={"dataset_schema": schema})
    (found,) = _class_sizes(Outcome(offset))
    assert found.examples == ("c", "d", "e")


def test_classes_that_differ_from_the_base_are_noted_with_their_shares() -> None:
    old = Counter({"a": 500, "b": 400, "c": 100, "d": 5, "gone": 7})
    new = Counter({"a": 510, "b": 390, "c": 20, "d": 7, "x": 3, "y": 9, "z": 1, "w": 2})
    drift = dataset_info._class_drift(old, new)
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
    assert list(lines(_class_drift(Outcome(made)))) == [
        "note: classes of 'label' since base 1.0.0: 4 new (y, x, w, …); 1 gone (gone); "
        "1 with another share (c 9.9% → 2.1%)"
    ]


def test_a_difference_by_chance_or_of_all_classes_alike_is_none() -> None:
    old = Counter({"a": 1_000, "b": 10})
    assert dataset_info._class_drift(old, Counter({"a": 1_000, "b": 19})) == ClassDrift()
    assert dataset_info._class_drift(old, Counter({"a": 9_000, "b": 90})) == ClassDrift()
    assert dataset_info._class_drift(old, Counter({"a": 1_000, "b": 30})).changed == 1


def test_without_a_base_there_is_no_drift() -> None:
    made = manifest({0: 1}).model_copy(update={"base": None})
    assert list(lines(_class_drift(Outcome(made)))) == []


TAIL = ". If the labels are ids, write all of them as plain integers (7, not 07 or text), or set"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, 2, "07"], "4 of the 4 class names of 'x' are numbers, and the id of '07' is 1"),
        ([5, 7, "5"], "2 of the 2 class names of 'x' are numbers, and the id of '5' is 0"),
        ([3, "cat"], "1 of the 2 class names of 'x' are numbers, and the id of '3' is 0"),
        (["-2", "+2", "1.0"], "3 of the 3 class names of 'x' are numbers, and the id of '+2' is 0"),
        (["0", "1"], "2 of the 2 class names of 'x' are numbers"),
    ],
    ids=str,
)
def test_class_names_that_look_like_numbers_are_noted(labels: list[str | int], said: str) -> None:
    assert list(lines(class_names({"x": _sorted_class_names(labels)}, SourceEntry(), {}))) == [
        f"note: {said}{TAIL} --classes."
    ]


def test_numbers_with_fractions_as_class_names_are_a_warning() -> None:
    assert list(lines(class_names({"x": ("0.5", "1", "2.25")}, SourceEntry(), {}))) == [
        "warning: 3 of the 3 class names of 'x' are numbers, and the id of '0.5' is 0. If the "
        "labels are quantities, recordmill schema --infer TABLE prints a schema with kind: float, "
        "for --schema."
    ]


@pytest.mark.parametrize("labels", [[0, 7], ["cat", "n02123"], ["1 cat", "²"]], ids=str)
def test_other_class_names_are_not_noted(labels: list[str | int]) -> None:
    assert list(lines(class_names({"x": _sorted_class_names(labels)}, SourceEntry(), {}))) == []


@pytest.mark.parametrize(
    ("config", "notes"),
    [
        ({"classes": None, "num_classes": None}, 1),
        ({"classes": ["0", "1"]}, 0),
        ({"num_classes": 2}, 0),
    ],
)
def test_numeric_class_names_that_options_set_are_not_noted(
    config: dict[str, object], notes: int
) -> None:
    manifest = Manifest.model_construct(config=config, classes={"x": ("0", "1")}, splits={})
    assert len(list(_class_names(Outcome(manifest)))) == notes


@pytest.mark.parametrize(
    ("names", "ids", "notes"),
    [
        (("a", "b"), {"a": 0, "b": 1}, []),
        (("background", "a", "b"), {"a": 1, "b": 2}, []),
        (("a", "b", "new"), {"a": 0, "b": 1}, []),
        (
            ("z", "a", "m"),
            {"z": 1, "a": 7, "m": 90},
            [
                "note: 3 class ids of 'x' differ from the source (z 1 → 0, a 7 → 1, m 90 → 2), "
                "because ids count from 0 without gaps, in the order of the classes"
            ],
        ),
        (
            ("a", "b"),
            {"a": 1, "b": 2},
            [
                "note: 2 class ids of 'x' differ from the source (a 1 → 0, b 2 → 1), "
                "because ids count from 0 without gaps, in the order of the classes",
                "      (--label_offset 1 keeps the ids of the source)",
            ],
        ),
    ],
)
def test_class_ids_that_differ_from_the_source_are_noted(
    names: tuple[str, ...], ids: dict[str, int], notes: list[str]
) -> None:
    assert list(lines(class_names({"x": names}, SourceEntry(class_ids={"x": ids}), {}))) == notes


@pytest.mark.parametrize(("ids", "notes"), [({"a": 0}, 1), ({"a": 0, "1": 1}, 0)], ids=str)
def test_ids_of_one_input_among_names_of_another_are_noted(ids: dict[str, int], notes: int) -> None:
    source = SourceEntry(class_ids={"x": ids})
    manifest = Manifest.model_construct(
        config={}, classes={"x": ("a", "1")}, splits={}, source=source
    )
    found = [finding.kind for finding in _class_names(Outcome(manifest))]
    assert found == ["numeric_class_names"] * notes


@pytest.mark.parametrize(
    ("names", "ids", "default", "kinds"),
    [
        (("Cat", "cat", "dog"), [0, 1], None, ["alike_classes"]),
        (("Barn_Owl", "barn-owl", "barn  owl"), [0, 1, 2], None, ["alike_classes"]),
        (("caf\u00e9", "cafe\u0301"), [0, 1], None, ["alike_classes"]),
        (("'cat'", "cat"), [0, 1], None, ["alike_classes"]),
        (("c", "c++", "a 2", "a2", "caf\u00e9", "cafe"), [0, 1], None, []),
        (("cat", "nan"), [0, 1], None, ["missing_value_classes"]),
        (("cat", "#N/A"), [0, 1], None, ["missing_value_classes"]),
        (("cat", "?"), [0, 1], None, ["missing_value_classes"]),
        (("cat", "('a', 'b')", "(none)"), [0, 1, 2], None, ["list_classes"]),
        (("cat", "cat|dog"), [0, 1], None, ["list_classes"]),
        (("['cat', 'dog']", "['dog']"), [0, 1], None, ["list_classes"]),
        (("0 14", "3"), [0, 1], None, ["list_classes"]),
        (('{"type": "cat"}', "dog"), [0, 1], None, ["list_classes"]),
        (("n01 10 20 30 40 n02 1 2 3.5 4", "n01"), [0, 1], None, ["list_classes"]),
        (("model 3 1", "n01"), [0, 1], None, []),
        (("cat", "cat, dog", "dog"), [0, 1, 2], None, ["list_classes"]),
        (("cat/dog", "cat", "dog"), [0, 1, 2], None, ["list_classes"]),
        (("haze primary", "clear primary water", "clear water"), [0, 1], None, ["list_classes"]),
        (("polar bear", "brown bear", "cat"), [0, 1, 2], None, []),
        (("great white shark", "tench, Tinca tinca", "[1]th"), [0, 1, 2], None, []),
        ((), [-1, 0, 1], None, ["negative_classes"]),
        ((), [-1, 0, 1], -1, []),
        (("cat", "dog"), [0, 1], None, []),
    ],
    ids=str,
)
def test_labels_that_may_not_be_meant_are_noted(
    names: tuple[str, ...], ids: list[int], default: int | None, kinds: list[str]
) -> None:
    made = manifest(dict.fromkeys(ids, 20))
    feature = made.dataset_schema.features["label"].model_copy(update={"default": default})
    schema = made.dataset_schema.model_copy(
        update={"features": {**made.dataset_schema.features, "label": feature}}
    )
    changed = {"dataset_schema": schema, "classes": {"label": names}}
    outcome = Outcome(made.model_copy(update={**changed, "input": SimpleNamespace(records=0)}))
    assert [finding.kind for finding in _doubtful_labels(outcome)] == kinds


@pytest.mark.parametrize(
    ("shape", "records", "found"),
    [((), 80, [("list_classes", "note")]), ((), 79, []), (None, 80, [])],
)
def test_lists_in_one_text_are_found_by_one_of_their_names(
    shape: tuple[()] | None, records: int, found: list[tuple[str, str]]
) -> None:
    made = manifest({0: 20, 1: 20})
    feature = made.dataset_schema.features["label"].model_copy(update={"shape": shape})
    schema = made.dataset_schema.model_copy(update={"features": {"label": feature}})
    changes: dict[str, Any] = {"dataset_schema": schema, "classes": {"label": ("cat dog", "dog")}}
    changes["input"] = SimpleNamespace(records=records)
    outcome = Outcome(made.model_copy(update=changes))
    assert [(one.kind, one.severity) for one in _doubtful_labels(outcome)] == found
    changes["classes"] = {"label": ("haze primary", "clear primary")}
    assert [
        (one.kind, one.severity)
        for one in _doubtful_labels(Outcome(made.model_copy(update=changes)))
    ] == found
    changes["classes"] = {"label": ("cat dog", "dog", "cat")}  # not as polar bear and bear
    (certain,) = _doubtful_labels(Outcome(made.model_copy(update=changes)))
    assert certain.severity == "warning"


def test_contradicting_class_ids_are_noted() -> None:
    source = SourceEntry(class_ids={"x": {"a": 0}}, conflicts={"x": "b.yaml: id 0 is 'b'"})
    assert list(lines(class_names({"x": ("a", "b")}, source, {}))) == [
        "note: b.yaml: id 0 is 'b'. The classes of 'x' are in the order of the files."
    ]


@pytest.mark.parametrize(
    ("column", "names", "found"),
    [
        ("tags", ("haze primary", "clear primary", "cloudy"), ["warning"]),
        ("image_labels", ("haze primary", "clear primary", "cloudy"), ["warning"]),
        ("species", ("haze primary", "clear primary", "cloudy"), []),
        ("tags", ("polar bear", "red panda", "cloudy"), []),
        ("species", ("red car", "red bus", "old car", "old bus"), ["note"]),
    ],
)
def test_words_in_several_names_are_labels_of_a_column_of_tags(
    column: str, names: tuple[str, ...], found: list[str]
) -> None:
    changes = {"classes": {"label": names}, "config": {"columns": {"label": column}}}
    changes["input"] = SimpleNamespace(records=9)
    made = manifest(dict.fromkeys(range(len(names)), 3)).model_copy(update=changes)
    assert [one.severity for one in _doubtful_labels(Outcome(made))] == found
