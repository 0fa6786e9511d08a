"""Boxes are converted between orders, and their numbers are checked."""

import pytest

from recordmill.schemas.origins import BOX_ORDERS
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.values.boxes import TO_CORNERS, convert_box, number_of


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("xyxy", (0.0, 0.25, 0.5, 1.0)),
        ("yxyx", (0.25, 0.0, 1.0, 0.5)),
        ("xywh", (0.0, 0.25, 0.5, 0.75)),
        ("cxcywh", (0.25, 0.625, 0.5, 0.75)),
    ],
)
def test_orders(order, expected):
    assert convert_box((0.0, 0.25, 0.5, 1.0), order) == expected
    assert TO_CORNERS[order](*expected) == (0.0, 0.25, 0.5, 1.0)


def test_every_order_can_be_read_and_written():
    assert tuple(sorted(TO_CORNERS)) == tuple(sorted(BOX_ORDERS))


@pytest.mark.parametrize("value", [None, True, "x", "nan", float("inf"), [1], 10**400])
def test_only_finite_numbers_are_coordinates(value):
    with pytest.raises(RecordError) as error:
        number_of(value, "object 1")
    assert error.value.reason is Reason.BAD_BOX
