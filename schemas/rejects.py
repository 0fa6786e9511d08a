"""A row that could not become an example, the closed list of reasons, and the limits of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from recordmill.schemas.errors import did_you_mean
from recordmill.schemas.masking import masked, masked_json, masked_source
from recordmill.schemas.records import ImageRef, source_of


class Reason(str, Enum):
    """Why a row was rejected. The list is closed: reports and budgets count by it."""

    READ_ERROR = "read_error"
    EMPTY_FILE = "empty_file"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    TOO_MANY_PIXELS = "too_many_pixels"
    INVALID_DIMENSIONS = "invalid_dimensions"
    ANIMATED = "animated"
    TIMEOUT = "timeout"
    DECODER_CRASH = "decoder_crash"

    LOST_ROWS = "lost_rows"
    """Nobody knows how many: stands for all rows behind a damage, and is beyond any budget."""

    MALFORMED_ROW = "malformed_row"
    MISSING_VALUE = "missing_value"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_SPLIT = "unknown_split"
    DUPLICATE_KEY = "duplicate_key"
    BAD_BOX = "bad_box"
    UNMATCHED_JOIN = "unmatched_join"
    OUTSIDE_ROOT = "outside_root"

    DUPLICATE_ORDER = "duplicate_order"
    CONTEXT_DIFFERS = "context_differs"
    SEQUENCE_BROKEN = "sequence_broken"


MAX_DETAIL = 1000
"""Characters; details show values, which may have millions."""


def _bounded(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else f"{detail[: MAX_DETAIL - 1]}…"


class RecordError(Exception):
    """One record cannot become an example. Raised by pure functions, made a `Reject` at the edge.

    Attributes:
        reason: one of the closed list.
        detail: what was got and what was expected, in words.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = _bounded(masked(detail))  # wherever it goes: rejects, checkpoints, messages
        super().__init__(f"{reason.value}: {self.detail}")

    def __reduce__(self) -> tuple[type[RecordError], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)


@dataclass(frozen=True)
class Reject:
    """The dead letter of one row: never carries image bytes.

    Attributes:
        key: the row's key, or "" where the row was too broken to have one.
        uri: where its image is, or "".
        source: file and line of the row, as in "labels.csv:17".
        reason: one of the closed list.
        detail: what was got and what was expected, in words.
        split: the split the row had been placed in, or "" if it never was. Not written out.
        start: first byte of the image within the file, or None for the whole file.
        stop: the byte after its last.
    """

    key: str
    uri: str
    source: str
    reason: Reason
    detail: str
    split: str = ""
    start: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        """Masks and bounds the detail."""
        object.__setattr__(self, "detail", _bounded(masked(self.detail)))

    @classmethod
    def of(cls, ref: ImageRef, reason: Reason, detail: str, split: str = "") -> Reject:
        """Returns the reject of a row that is known by its reference."""
        start, stop = (None, None) if ref.staged else (ref.start, ref.stop)
        return cls(ref.key, ref.shown_uri, ref.source, reason, detail, split, start, stop)

    @classmethod
    def of_malformed_row(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject of a row that is too broken to have a key."""
        return cls("", "", source_of(file, line), Reason.MALFORMED_ROW, detail)

    @classmethod
    def of_lost_rows(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject that stands for a number of rows which cannot be known."""
        return cls("", "", source_of(file, line), Reason.LOST_ROWS, detail)

    def to_json(self) -> str:
        """Returns one line of rejects/rejects-*.jsonl, without what a web address keeps secret."""
        line: dict[str, Any] = {
            "key": self.key,
            "uri": self.uri,
            "source": masked_source(self.source),
            "reason": self.reason.value,
            "detail": self.detail,
        }
        if self.start is not None and self.stop is not None:
            line |= {"start": self.start, "stop": self.stop}
        return masked_json(line)

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of that line."""
        fields: dict[str, Any] = json.loads(self.to_json())
        return fields


_SHOWN_LOST = 3


class RejectLimit(BaseModel):
    """A count of rows, or a part of all rows."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal = Field(default=Decimal(0), ge=0)
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> RejectLimit:
        """Returns the limit that "3" or "0.5%" stands for.

        Raises:
            ValueError: if the text stands for none.
        """
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if not match or (match[2] and Decimal(match[2]) > 100):
            raise ValueError(f"expected a number of rows or a percentage like 0.5%, got {text!r}")
        return cls(amount=Decimal(match[1] or match[2]), percent=bool(match[2]))

    def allows(self, rejected: int, rows: int) -> bool:
        """Returns whether so many rejects of so many rows are within the limit."""
        return rejected <= (self.amount * rows / 100 if self.percent else self.amount)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else str(self.amount)


class RejectBudget(BaseModel):
    """A limit for all rejects, and others for those of single reasons.

    Where only reasons have limits, no row may be rejected for any other. No limit allows rows to be
    lost whose number is not known, and these do not count in any other limit.

    Attributes:
        total: of all rejects; None if only reasons have limits.
        reasons: reason to its own limit, which holds beside the total.

    >>> RejectBudget.parse("5%").exceeded({"truncated": 5}, rows=100)
    ()
    >>> RejectBudget.parse("10,truncated=2").exceeded({"truncated": 5}, rows=100)
    ('truncated',)
    >>> RejectBudget.parse("100%").exceeded({"lost_rows": 1}, rows=100)
    ('lost_rows',)
    """

    model_config = ConfigDict(frozen=True)

    total: RejectLimit | None = RejectLimit()
    reasons: dict[Reason, RejectLimit] = {}

    @classmethod
    def parse(cls, text: str) -> RejectBudget:
        """Returns the budget that "10", "0.5%" or "10,truncated=5,read_error=1%" stands for.

        Raises:
            ValueError: if the text stands for none.
        """
        total: RejectLimit | None = None
        reasons: dict[Reason, RejectLimit] = {}
        for part in text.split(","):
            name, named, limit = part.partition("=")
            if not named and total is None:
                total = RejectLimit.parse(part)
            elif not named:
                raise ValueError(f"has two limits for all rejects, {total} and {part.strip()}")
            elif (reason := _reason(name.strip())) in reasons:
                raise ValueError(f"names {reason.value} twice")
            else:
                reasons[reason] = RejectLimit.parse(limit)
        return cls(total=total, reasons=reasons)

    def exceeded(self, rejects: Mapping[str, int], rows: int) -> tuple[str, ...]:
        """Returns the reasons over their limits, in the order of the names; "all rejects" first.

        Args:
            rejects: reason to how many rows were rejected for it.
            rows: how many rows there are.
        """
        limits = {reason.value: limit for reason, limit in self.reasons.items()}
        counted = {name: count for name, count in rejects.items() if name != Reason.LOST_ROWS.value}
        lost = sum(rejects.values()) - sum(counted.values())
        rows -= lost  # what stands for an unknown number of rows is none itself
        over = {Reason.LOST_ROWS.value} if lost else set[str]()
        for name, count in counted.items():
            limit = limits.get(name, RejectLimit() if self.total is None else None)
            if limit is not None and not limit.allows(count, rows):
                over.add(name)
        everything = sum(counted.values())
        all_over = self.total is not None and not self.total.allows(everything, rows)
        return (*(["all rejects"] if all_over else []), *sorted(over))

    def describe(self, over: tuple[str, ...]) -> str:
        """Returns the budget as text, with the reasons over their limits if there are any."""
        return str(self) if not self.reasons else f"{self}, exceeded by {', '.join(over)}"

    def __str__(self) -> str:
        named = [f"{reason.value}={limit}" for reason, limit in self.reasons.items()]
        return ",".join([*([] if self.total is None else [str(self.total)]), *named])


def lost_rows_message(lost: Iterable[tuple[str, str]]) -> str:
    """Returns the message about input of which an unknown number of rows is lost.

    Args:
        lost: the source and the detail of each such reject.
    """
    ordered = sorted(lost)
    shown = "\n  ".join(f"{source}: {detail}" for source, detail in ordered[:_SHOWN_LOST])
    more = len(ordered) - _SHOWN_LOST
    tail = f"\n  and {more:,} more" if more > 0 else ""
    return (
        f"rows of the input are lost:\n  {shown}{tail}\n"
        "how many cannot be known, so no --max_rejects allows it: "
        "replace the file by a whole copy, or fix it there"
    )


def _reason(name: str) -> Reason:
    if name == Reason.LOST_ROWS.value:
        raise ValueError(f"{name} has no limit: how many rows are lost is not known")
    known = [reason.value for reason in Reason if reason is not Reason.LOST_ROWS]
    if name not in known:
        guess = did_you_mean(name, known)
        raise ValueError(f"{name!r} is no reason{guess}; there are: {', '.join(known)}")
    return Reason(name)
