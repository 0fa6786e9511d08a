"""Messages in protobuf's wire format; `test_examples` compares whole examples with TensorFlow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.example_pb2 import Example, SequenceExample
from recordmill.schemas.features import Feature
from recordmill.schemas.origins import Kind
from recordmill.transforms.functional.records.examples import (
    _CONTEXT,
    _FEATURE_LISTS,
    _FEATURES,
    _encoded_feature,
    _encoded_features,
    _encoded_lists,
    _field,
    _varint,
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
    parts = _field(_FEATURES, _encoded_features(dict.fromkeys(names, spec), names))
    assert b"".join(parts) == example.SerializeToString(deterministic=True)


def test_a_list_of_a_sequence_has_a_feature_per_frame():
    sequence = SequenceExample()
    sequence.context.SetInParent()
    lists = sequence.feature_lists.feature_list
    for value in (1.5, -2.0):
        lists["x"].feature.add().float_list.value.append(value)
    lists["x/y"].feature.add().bytes_list.value.extend([b"", b"12"])
    found = {
        "x": [_encoded_feature(Kind.FLOAT, 1.5), _encoded_feature(Kind.FLOAT, -2.0)],
        "x/y": [_encoded_feature(Kind.BYTES, [b"", b"12"])],
    }
    parts = [*_field(_CONTEXT, []), *_field(_FEATURE_LISTS, _encoded_lists(found))]
    assert b"".join(parts) == sequence.SerializeToString(deterministic=True)


def test_an_image_is_not_copied():
    image = b"x" * 1000
    assert any(part is image for part in _encoded_feature(Kind.BYTES, image))
