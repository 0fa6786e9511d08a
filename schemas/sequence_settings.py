"""Which rows make one sequence, and in which order: a schema's `sequence:` block."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SequenceSettings(BaseModel):
    """Which rows are the frames of one sequence.

    Attributes:
        group: the column whose value all frames of a sequence have in common: its key.
        order: the column that tells the place of a frame: by number if every value in the sequence
            is one, otherwise as text, with the numbers in it by their value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str = Field(min_length=1)
    order: str = Field(min_length=1)
