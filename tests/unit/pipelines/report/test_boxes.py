"""Box statistics: every order of coordinates, and the map of centers."""

from __future__ import annotations

import pytest

from recordmill.pipelines.report.statistics import GRID, Cell, _box_statistics
from recordmill.schemas.features import Schema
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rendering.drawing import with_drawn_keys

SIDES = ("xmin", "xmax", "ymin", "ymax")


def record(*boxes: tuple[float, float, float, float]) -> dict[str, list[float]]:
    """Returns the values of a record of the preset object_detection."""
    xmin, ymin, xmax, ymax = map(list, zip(*boxes, strict=True)) if boxes else ([], [], [], [])
    values = {"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax}
    return {f"image/object/bbox/{side}": values[side] for side in SIDES}


def test_sizes_and_centers() -> None:
    records = [
        record((0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5)),
        record((0.0, 0.0, 0.5000001, 0.5)),
        {},
    ]
    found = _box_statistics(preset("object_detection"), records)
    assert found is not None
    assert (found.records, found.boxes) == (3, 3)
    of_records, widths, heights, sizes = (histogram for _, histogram in found.histograms)
    assert (of_records.minimum, of_records.maximum, of_records.total) == ("0", "2", 3)
    for histogram in (widths, heights, sizes):
        assert (histogram.minimum, histogram.maximum, histogram.total) == ("50%", "50%", 3)
        assert len(histogram.bars) == 1
    quarter = GRID // 4
    assert found.centers == (
        Cell(quarter, quarter, 2, 1.0),
        Cell(3 * quarter, quarter, 1, 0.5),
    )


@pytest.mark.parametrize(
    ("order", "values"),
    [
        ("xyxy", [0.0, 0.25, 1.0, 0.75]),
        ("yxyx", [0.25, 0.0, 0.75, 1.0]),
        ("xywh", [0.0, 0.25, 1.0, 0.5]),
        ("cxcywh", [0.5, 0.5, 1.0, 0.5]),
    ],
)
def test_every_order_gives_the_same_statistics(order: str, values: list[float]) -> None:
    feature = {"kind": "float", "from": f"box:{order}", "shape": [None, 4]}
    image = {"kind": "bytes", "from": "image:bytes"}
    schema = Schema.model_validate({"features": {"image": image, "boxes": feature}})
    found = _box_statistics(schema, [{"boxes": values * 2}])
    expected = _box_statistics(
        preset("object_detection"), [record((0.0, 0.25, 1.0, 0.75), (0.0, 0.25, 1.0, 0.75))]
    )
    assert found == expected
    assert found is not None
    assert found.boxes == 2


def test_without_boxes_there_are_no_statistics() -> None:
    assert _box_statistics(preset("object_detection"), [record()]) is None
    assert _box_statistics(preset("image_classification"), [{"image": [b"x"]}]) is None


def test_boxes_and_masks_of_any_schema_have_the_keys_that_are_drawn() -> None:
    schema = Schema.model_validate(
        {
            "features": {
                "image": {"kind": "bytes", "from": "image:bytes"},
                "box": {"kind": "float", "from": "box:yxyx", "shape": [None, 4]},
                "what": {
                    **{"kind": "int64", "from": "column:labels", "shape": []},
                    **{"classes": True, "per_box": True},
                },
                "depth": {"kind": "bytes", "from": "mask:depth"},
            }
        }
    )
    values = {"image": [b"i"], "box": [0.1, 0.2, 0.3, 0.4], "what": [7], "depth": [b"m"]}
    drawn = with_drawn_keys(schema, values)
    assert {side: drawn[f"image/object/bbox/{side}"] for side in SIDES} == {
        **{"xmin": [0.2], "xmax": [0.4]},
        **{"ymin": [0.1], "ymax": [0.3]},
    }
    assert drawn["image/object/class/label"] == [7]
    assert drawn["image/segmentation/class/encoded"] == [b"m"]
    assert "depth" not in drawn  # is not mistaken for the image
    plain = record((0.0, 0.0, 0.5, 0.5))
    assert with_drawn_keys(preset("object_detection"), plain).items() >= plain.items()
