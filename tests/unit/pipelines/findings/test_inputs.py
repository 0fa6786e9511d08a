"""Findings on how the input was read."""

from __future__ import annotations

import pytest

from recordmill.pipelines import findings
from recordmill.pipelines.findings import Outcome, _changed_values, _encoded_images, skipped
from recordmill.schemas import records
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.settings import ImageSettings

SCHEMA = Schema.model_validate(
    {"features": {"label": {"kind": "int64", "from": "column:label", "classes": True}}}
)


@pytest.mark.parametrize(
    ("settings", "images", "notes"),
    [
        ({"max_side": 9}, {"jpeg kept": 3, "webp to png, resized": 1}, []),
        (
            {"max_side": 9, "quality": 80},
            {"jpeg kept": 3, "jpeg to jpeg, resized": 2, "mpo to jpeg, resized": 1},
            [
                "encoded: 3 images as JPEG with quality 80; "
                "--image format=png resizes without further loss"
            ],
        ),
        (
            {"format": "jpeg"},
            {"png to jpeg, jpeg": 1},
            ["encoded: 1 image as JPEG with quality 95"],
        ),
    ],
)
def test_images_encoded_with_loss_are_noted(
    settings: dict[str, object], images: dict[str, int], notes: list[str]
) -> None:
    features = {"image": Feature.model_validate({"kind": "bytes", "from": "image:bytes"})}
    schema = Schema(features=features, image=ImageSettings.model_validate(settings))
    manifest = Manifest.model_construct(dataset_schema=schema, images=images)
    assert [finding.line for finding in _encoded_images(Outcome(manifest))] == notes


def test_changes_to_the_meaning_of_samples_are_noted() -> None:
    features = {"image": Feature.model_validate({"kind": "bytes", "from": "image:bytes"})}
    schema = Schema(features=features, image=ImageSettings(window=(-1000, 3000)))
    images = {
        "tiff to png, window": 2,
        "tiff to png, window, 8 bits": 1,
        "tiff to png, rescaled per image": 1,
        "16 bits per sample": 9,
        "pixels outside the window": 2,
        "first of several frames": 2,
        "jpeg kept": 7,
    }
    manifest = Manifest.model_construct(dataset_schema=schema, images=images)
    assert [finding.line for finding in _changed_values(Outcome(manifest))] == [
        "3 images are mapped by the window -1000:3000",
        "note: 1 image is rescaled per image, so that equal values differ",
        "1 image is reduced to 8 bits per sample",
        "note: 2 images are clipped to the window -1000:3000 in some pixels",
        "note: 2 images are the first of several frames or pages",
        'note: 9 images are of 16 bits; readers return 8 without dtype="uint16"',
    ]


def test_images_in_formats_that_are_not_read_are_a_warning() -> None:
    found = skipped(
        {"DICOM files": 2, "HTML files": 1}, {"DICOM files": ["a/1.dcm"]}, 9, {}, SCHEMA
    )
    assert [(one.line, one.hint) for one in found] == [
        (
            "warning: skipped: DICOM files (2: a/1.dcm, …)",
            "Convert it to TIFF or 16-bit PNG, for example with pydicom",
        ),
        ("skipped: HTML files (1)", ""),
    ]


def test_labels_without_an_image_are_no_mere_information() -> None:
    kinds = (
        records.UNMATCHED_ANNOTATIONS,
        records.UNMATCHED_FILES,
        records.UNMATCHED_LABELS,
        records.UNUSED_IMAGES,
    )
    found = skipped(dict.fromkeys(kinds, 1), {}, 9, {}, SCHEMA)
    assert [one.severity for one in found] == ["warning", "warning", "note", "info"]


@pytest.mark.parametrize(
    ("number", "line"),
    [(3, "3 images with swapped sides (a, …)"), (1, "1 image with swapped sides (a)")],
)
def test_a_counted_kind_with_a_severity_is_a_warning(
    number: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "images with swapped sides"
    monkeypatch.setitem(findings.SEVERITIES, kind, "warning")
    (found,) = skipped({kind: number}, {kind: ["a"]}, 9, {}, SCHEMA)
    assert found.line == f"warning: {line}"
    assert (found.kind, found.figures, found.examples) == ("counted", {"number": number}, ("a",))


def test_names_that_are_replaced_are_counted_and_others_are_a_warning() -> None:
    rename = {"a": "b", "dog": "pet", "x=y": "'"}
    numbers = {"--rename a=b": 1, "--rename x=y='": 2_000}
    found = skipped(numbers, {}, 9, {"rename": rename}, SCHEMA)
    assert [(one.kind, one.line) for one in found] == [
        ("renamed", "note: 1 row with the label 'a' in label, renamed to 'b'"),
        ("unused_name", "warning: --rename dog=pet: no row has the label 'dog' in label"),
        ("renamed", "note: 2,000 rows with the label 'x=y' in label, renamed to \"'\""),
    ]


def test_options_for_classes_name_each_feature_that_they_apply_to() -> None:
    features = {**SCHEMA.features, "color": SCHEMA.features["label"]}
    options = {"rename": {"a": "b"}, "per_class": 2}
    numbers = {"--rename a=b": 1, "rows beyond --per_class": 7}
    found = [*skipped(numbers, {}, 9, options, Schema(features=features))]
    assert [one.line for one in found] == [
        "skipped: rows beyond --per_class of label, color (7)",
        "note: 1 row with the label 'a' in label, color, renamed to 'b'",
        "note: --rename applies to each feature with classes: label, color",
        "note: --per_class 2 applies to each feature with classes: label, color",
    ]
    assert found[-1].examples == ("label", "color")
    assert len([*skipped(numbers, {}, 9, options, SCHEMA)]) == 2
