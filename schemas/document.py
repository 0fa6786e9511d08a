"""What the documents of a dataset and their parts have in common."""

from __future__ import annotations

from operator import not_
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Document(BaseModel):
    """A document, or a part of one: immutable, and without fields that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> bytes:
        """Returns the content of its file."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def first_fault(error: ValidationError, *within: str) -> str:
    """Returns where a document is invalid first, below the fields `within`, and why."""
    first = error.errors()[0]
    where = " > ".join([*within, *map(str, first["loc"])]) or "the file"
    return f"at {where}: {first['msg']}"


def unwritten_if_empty(default: Any) -> Any:
    """Declares a field that is not written while it is None, 0 or empty."""
    return Field(default, exclude_if=not_)
