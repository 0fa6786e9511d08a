"""How masks are made: a schema's `masks:` block."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recordmill.schemas.box_settings import Frame


class MaskSettings(BaseModel):
    """What masks are drawn on, and how they are stored.

    Attributes:
        labels: the column that holds the class of each object of a `segmentation:` column.
        frame: the picture that they were drawn on, as for boxes.
        bit_depth: of all masks: 8 holds ids up to 255, 16 up to 65535.
        padding: the id of what `resize: … pad` adds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: str = "labels"
    frame: Frame = "displayed"
    bit_depth: Literal[8, 16] = 8
    padding: int = Field(default=0, ge=0, le=65_535)

    @model_validator(mode="after")
    def _check(self) -> MaskSettings:
        if self.padding > self.max_id:
            raise ValueError(f"padding: {self.padding} does not fit {self.bit_depth} bits")
        return self

    @property
    def max_id(self) -> int:
        """The largest class id that a mask can hold."""
        return 255 if self.bit_depth == 8 else 65_535
