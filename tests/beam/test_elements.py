"""References cross a shuffle whole, and compactly: boxes and outlines among them."""

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
def test_references_come_back_as_they_were(ref: ImageRef) -> None:
    coder = ImageRefCoder()
    assert coder.decode(coder.encode(ref)) == ref


def test_boxes_cost_some_bytes_a_number_and_nothing_where_there_are_none() -> None:
    coder = ImageRefCoder()
    plain = len(coder.encode(PLAIN))
    assert plain < 80
    assert len(coder.encode(PLAIN._replace(boxes=("pixel", [1.0] * 40)))) < plain + 40 * 9 + 20
