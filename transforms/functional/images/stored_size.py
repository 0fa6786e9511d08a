"""How large the stored pictures of a schema are: known beforehand, from each record, or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import ImageFact, Schema


def common_size(schema: Schema) -> tuple[int, int] | None:
    """Returns height and width of all pictures, if the schema makes them one size."""
    resize = schema.image.resize
    if resize is None or resize.mode == "fit":
        return None
    return resize.height, resize.width


def fact_names(schema: Schema) -> dict[ImageFact, str]:
    """Returns which fact of the image stands in which feature."""
    return {f.image_fact: name for name, f in schema.features.items() if f.image_fact}


def raw_size(schema: Schema, example: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns height and width of a raw picture, from its example where the schema stores them.

    Raises:
        UsageError: if they stand nowhere: such pixels are no picture any more.
    """
    check_raw_size(schema)
    names = fact_names(schema)
    if ImageFact.HEIGHT in names and ImageFact.WIDTH in names:
        return example[names[ImageFact.HEIGHT]], example[names[ImageFact.WIDTH]]
    return common_size(schema) or (0, 0)


def check_raw_size(schema: Schema) -> None:
    """Refuses raw pixels whose size stands nowhere.

    Raises:
        UsageError: for such a schema.
    """
    sized = {ImageFact.HEIGHT, ImageFact.WIDTH} <= fact_names(schema).keys()
    if not sized and common_size(schema) is None:
        raise UsageError(
            f"schema {schema.name!r} stores raw pixels without their size, so that they cannot be "
            "shaped: read with decode=False, or convert with features from image:height and "
            "image:width"
        )
