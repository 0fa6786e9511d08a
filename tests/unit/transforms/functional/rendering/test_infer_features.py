"""Tests of the features inferred from records without a schema."""

from __future__ import annotations

import pytest

from recordmill.schemas.masking import visible
from recordmill.schemas.records import FrameValues
from recordmill.transforms.functional.rendering.infer_features import (
    InferredFeature,
    infer_features,
)
from tests.images import image_bytes, jpeg, png


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1], [7, -3]], ("int64", "1 to 2", "-3 to 7")),
        ([[2**63 - 1]], ("int64", "1", "9223372036854775807")),
        ([[0.5], []], ("float", "0 to 1", "0.5")),
        ([[0.5, float("nan")], [2.0]], ("float", "1 to 2", "0.5 to 2, 1 not finite")),
        ([[float("inf")]], ("float", "1", "1 not finite")),
        ([[], []], ("empty", "0", "")),
        ([[b"cat"], ["Übermut".encode()]], ("bytes", "1", "text")),
        ([[b"\0\1"], [b"\xff"], [b"cat"]], ("bytes", "1", "bytes, text")),
        ([[jpeg()], [jpeg()], [png()]], ("bytes", "1", "JPEG image, PNG image")),
        ([[image_bytes("WEBP")]], ("bytes", "1", "WEBP image")),
        ([[jpeg()[:100]]], ("bytes", "1", "damaged image")),
    ],
)
def test_a_feature_is_described_by_its_values(values, expected):
    (found,) = infer_features([{"x": v} for v in values])
    assert found == InferredFeature("x", *expected)


def test_raw_pixels_are_described_by_the_size_of_their_record():
    record = {"image_raw": [b"x" * 24], "height": [2], "width": [4], "depth": [3]}
    assert {f.name: f.holds for f in infer_features([record])}["image_raw"] == "pixels, uint8"


def test_a_feature_that_some_records_lack_has_no_value_there():
    found = infer_features([{"a": [1]}, {"b": [b"x"]}])
    assert [(f.name, f.lengths) for f in found] == [("a", "0 to 1"), ("b", "0 to 1")]


def test_features_of_frames_state_the_number_of_frames() -> None:
    def values(numbers: list[int], frames: int) -> FrameValues:
        found = FrameValues(numbers)
        found.frames = frames
        return found

    records = [
        {"one": values([7, 8], 2), "several": values([1, 2, 3], 2)},
        {"one": values([9], 1), "several": values([], 1)},
    ]
    assert [(feature.name, feature.lengths) for feature in infer_features(records)] == [
        ("one", "1 to 2 frames"),
        ("several", "0 to 3 in 1 to 2 frames"),
    ]


@pytest.mark.parametrize(
    ("text", "shown"), [("naïve 猫", "naïve 猫"), ("\x1b[2J", "\\x1b[2J"), ("\u200b", "\\u200b")]
)
def test_control_characters_are_escaped(text, shown):
    assert visible(text) == shown
