"""The coder of references: compact, and lossless for boxes and outlines as well."""

from __future__ import annotations

import pytest

from recordmill.schemas.records import ImageRef
from recordmill.transforms.elements import ImageRefCoder

PLAIN = ImageRef("k", "t.csv", 2, "a.jpg", None, None, (None, b"x", 7, [1.5], []), "train", "g")


@pytest.mark.parametrize(
    "ref",
    [
        PLAIN,
        PLAIN._replace(start=0, stop=2**40),
        PLAIN._replace(boxes=("pixel", [1.0, 2.5, 1e300, float("-inf")])),
        PLAIN._replace(mask_uri="s3://b/m.png"),
        PLAIN._replace(
            segments=[(1, [[0.5, 1, 2, 3, 4, 5]]), (2, {"size": [2, 2], "counts": "04"})]
        ),
    ],
)
def test_references_survive_a_round_trip(ref: ImageRef) -> None:
    coder = ImageRefCoder()
    assert coder.decode(coder.encode(ref)) == ref


def test_the_encoded_size_is_a_few_bytes_per_box_coordinate() -> None:
    coder = ImageRefCoder()
    plain = len(coder.encode(PLAIN))
    assert plain < 80
    assert len(coder.encode(PLAIN._replace(boxes=("pixel", [1.0] * 40)))) < plain + 40 * 9 + 20
