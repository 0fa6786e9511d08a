"""Messages in protobuf's wire format; `test_examples` compares whole examples with TensorFlow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.example_pb2 import Example, SequenceExample
from recordmill.schemas.features import Feature
from recordmill.schemas.origins import Kind
from recordmill.transforms.functional.records.wire_format import (
    CONTEXT,
    FEATURE_LISTS,
    FEATURES,
    _varint,
    encoded_feature,
    encoded_features,
    encoded_lists,
    field,
)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")],
)
def test_varints_are_groups_of_seven_bits(number, expected):
    assert _varint(number).hex() == expected


NAMES = ["", "a", "a/b", "ab", "image", "image/format", "z", "ä", "äb", "\U0001f408"]


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), st.none(), min_size=1))
def test_names_are_in_the_order_of_protobuf(names):
    spec = Feature(kind=Kind.INT64, sources="column:any")
    example = Example()
    for name in names:
        example.features.feature[name].int64_list.SetInParent()
    parts = field(FEATURES, encoded_features(dict.fromkeys(names, spec), names))
    assert b"".join(parts) == example.SerializeToString(deterministic=True)


def test_a_list_of_a_sequence_has_a_feature_per_frame():
    sequence = SequenceExample()
    sequence.context.SetInParent()
    lists = sequence.feature_lists.feature_list
    for value in (1.5, -2.0):
        lists["x"].feature.add().float_list.value.append(value)
    lists["x/y"].feature.add().bytes_list.value.extend([b"", b"12"])
    found = {
        "x": [encoded_feature(Kind.FLOAT, 1.5), encoded_feature(Kind.FLOAT, -2.0)],
        "x/y": [encoded_feature(Kind.BYTES, [b"", b"12"])],
    }
    parts = [*field(CONTEXT, []), *field(FEATURE_LISTS, encoded_lists(found))]
    assert b"".join(parts) == sequence.SerializeToString(deterministic=True)


def test_an_image_is_not_copied():
    image = b"x" * 1000
    assert any(part is image for part in encoded_feature(Kind.BYTES, image))
