"""How a table writes boxes, and what becomes of bad ones: a schema's `boxes:` block."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

Frame = Literal["displayed", "stored"]
"""The picture that was annotated: turned by EXIF, as viewers show it, or as the file has it."""

Order = Literal["xyxy", "xywh", "yxyx", "cxcywh"]


class BoxSettings(BaseModel):
    """How a table writes boxes, and what becomes of bad ones.

    Attributes:
        columns: the four columns that hold a list of numbers each, in the order of `order`.
        column: the one column that holds a list of boxes, each a list of four; taken where the
            table does not have the four.
        order: "xyxy" two corners; "xywh" left, top, width and height; "yxyx" two corners, y first;
            "cxcywh" the middle, width and height.
        units: "pixel", or "normalized": fractions of width and height.
        units_column: the column in which rows say their own units; a table need not have it.
        frame: the picture that they were drawn on: as "displayed", that is, turned by EXIF, or as
            "stored".
        out_of_bounds: "clip" what stands over the picture's edge, "reject" the row, or "drop" the
            box. Less than a millionth of the picture's side is rounding, and always clipped.
        invalid: boxes without extent, inverted ones, and those that hold no numbers: "reject" the
            row, or "drop" the box.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, str, str, str] | None = ("xmin", "ymin", "xmax", "ymax")
    column: str | None = "bbox"
    order: Order = "xyxy"
    units: Literal["pixel", "normalized"] = "pixel"
    units_column: str | None = None
    frame: Frame = "displayed"
    out_of_bounds: Literal["clip", "reject", "drop"] = "clip"
    invalid: Literal["reject", "drop"] = "reject"

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_said(cls, values: Any) -> Any:
        """Takes one way to write boxes for the only one, if it is said alone."""
        if isinstance(values, dict) and ("columns" in values) != ("column" in values):
            return {"columns": None, "column": None, **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> BoxSettings:
        if self.columns is None and self.column is None:
            raise ValueError("boxes come from four columns or from one: name them")
        return self

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Every schema column that boxes may come from, that of their units included."""
        single = (self.column, self.units_column)
        return (*(self.columns or ()), *(name for name in single if name is not None))
