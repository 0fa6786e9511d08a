"""Rejects: rows that did not become records, the rejection reasons, and the reject budget."""

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
    """The rejection reasons: a closed list, by which reports and budgets count."""

    READ_ERROR = "read_error"
    MISSING_FILE = "missing_file"
    EMPTY_FILE = "empty_file"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    TOO_MANY_PIXELS = "too_many_pixels"
    INVALID_DIMENSIONS = "invalid_dimensions"
    ANIMATED = "animated"
    LOW_QUALITY = "low_quality"
    TIMEOUT = "timeout"
    DECODER_CRASH = "decoder_crash"

    LOST_ROWS = "lost_rows"
    """An unknown number of rows after damage in a file; it exceeds any budget."""

    MALFORMED_ROW = "malformed_row"
    MISSING_VALUE = "missing_value"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_SPLIT = "unknown_split"
    DUPLICATE_KEY = "duplicate_key"
    BAD_BOX = "bad_box"
    UNMATCHED_JOIN = "unmatched_join"
    OUTSIDE_ROOT = "outside_root"
    CHANGED_RECORD = "changed_record"
    """The base version has another record with the key; it exceeds any budget."""

    REMOVED_KEY = "removed_key"
    """The record with the key was removed from the base version, or from an earlier one."""

    DUPLICATE_ORDER = "duplicate_order"
    CONTEXT_DIFFERS = "context_differs"
    SEQUENCE_BROKEN = "sequence_broken"


# What to do about a reject, unless its detail ends with a remedy of its own.
REMEDIES = {
    Reason.MISSING_FILE: "Check the path and --image_root.",
    Reason.READ_ERROR: "Check permissions, disk and network.",
    Reason.OUTSIDE_ROOT: "Put the file there, or pass --allow_outside_root.",
    Reason.EMPTY_FILE: "Replace the file.",
    Reason.NOT_AN_IMAGE: "Replace the file.",
    Reason.UNSUPPORTED_FORMAT: "Convert the file to JPEG or PNG.",
    Reason.UNSUPPORTED_FEATURE: "Convert the file to a plain JPEG or PNG.",
    Reason.TRUNCATED: "Replace the file with an intact copy.",
    Reason.CORRUPT: "Replace the file with an intact copy.",
    Reason.TOO_MANY_PIXELS: "Scale the image down, or raise max_pixels with --image.",
    Reason.INVALID_DIMENSIONS: "Replace the image, or its mask.",
    Reason.ANIMATED: "Replace the image, or set --image animated=first.",
    Reason.LOW_QUALITY: "Replace the image, or remove the issue from --reject_quality.",
    Reason.TIMEOUT: "Raise --image_timeout.",
    Reason.DECODER_CRASH: "Convert the file to a plain JPEG or PNG.",
    Reason.LOST_ROWS: "Replace the table with an intact copy.",
    Reason.MALFORMED_ROW: "Fix the row.",
    Reason.MISSING_VALUE: "Fill in the value, or declare a default in the schema.",
    Reason.WRONG_TYPE: "Fix the value, or change the kind of the feature in the schema.",
    Reason.UNKNOWN_LABEL: "Fix the label, or add it to --classes.",
    Reason.UNKNOWN_SPLIT: "Fix the value, or add the split to --splits.",
    Reason.DUPLICATE_KEY: "Remove one of the rows, or set --key_column to a column of ids.",
    Reason.UNMATCHED_JOIN: "Add a row to --labels, or check --join_on.",
    Reason.CHANGED_RECORD: "Fix the row, or choose --on_conflict update or keep.",
    Reason.REMOVED_KEY: "Remove the row, or pass --max_rejects removed_key=100%.",
    Reason.BAD_BOX: "Fix the box, or leave such boxes out with --boxes invalid=drop.",
    Reason.DUPLICATE_ORDER: "Give each frame a position of its own.",
    Reason.CONTEXT_DIFFERS: "Give all rows of the sequence the same value.",
    Reason.SEQUENCE_BROKEN: "Fix the other rows of the sequence.",
}

# Maximum characters of a detail, which may quote values with millions of characters.
MAX_DETAIL = 1000


def _bounded(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else f"{detail[: MAX_DETAIL - 1]}…"


class RecordError(Exception):
    """A row cannot become a record; raised by pure functions, and converted to a `Reject`.

    Attributes:
        reason: the rejection reason.
        detail: a message: what is wrong, and what was expected.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = _bounded(
            masked(detail)
        )  # here, because it reaches rejects, logs and messages
        super().__init__(f"{reason.value}: {self.detail}")

    def __reduce__(self) -> tuple[type[RecordError], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)


@dataclass(frozen=True)
class Reject:
    """A rejected row, without its image.

    Attributes:
        key: the row's key, or "" if the row is too damaged to have a key.
        uri: the file of its image, or "".
        source: the source location of the row, as in "labels.csv:17".
        reason: the rejection reason.
        detail: a message: what is wrong, and what was expected.
        split: the split that the row was assigned to, or "". It is not written to rejects/.
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
        """Masks secrets in the detail, and limits its length."""
        object.__setattr__(self, "detail", _bounded(masked(self.detail)))

    @classmethod
    def of(cls, ref: ImageRef, reason: Reason, detail: str, split: str = "") -> Reject:
        """Returns the reject of a bound row.

        Args:
            ref: the reference of the row.
            reason: the rejection reason.
            detail: what is wrong, and what was expected.
            split: the split that the row was assigned to, or "".
        """
        start, stop = (None, None) if ref.staged else (ref.start, ref.stop)
        return cls(ref.key, ref.shown_uri, ref.source, reason, detail, split, start, stop)

    @classmethod
    def of_malformed_row(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject of a row that is too damaged to have a key.

        Args:
            file: the table.
            line: the line of the row.
            detail: what is wrong, and what was expected.
        """
        return cls("", "", source_of(file, line), Reason.MALFORMED_ROW, detail)

    @classmethod
    def of_lost_rows(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject that represents an unknown number of rows.

        Args:
            file: the table.
            line: the line at which the damage begins.
            detail: what is wrong.
        """
        return cls("", "", source_of(file, line), Reason.LOST_ROWS, detail)

    def to_json(self) -> str:
        """Returns a line of rejects/rejects-*.jsonl, with secrets masked."""
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
        """Returns the content of that line as a dict."""
        fields: dict[str, Any] = json.loads(self.to_json())
        return fields


def reject_line(source: str, reason: str, detail: str) -> str:
    """Returns the line on a reject in the terminal: where, what, and a remedy.

    Args:
        source: the source location, without secrets.
        reason: the rejection reason.
        detail: the detail of the reject.

    >>> reject_line("t.csv:2", "missing_file", "a.jpg: No such file or directory")
    't.csv:2: missing_file: a.jpg: No such file or directory. Check the path and --image_root.'
    """
    remedy = "" if detail.endswith(".") else f". {REMEDIES[Reason(reason)]}"
    return f"{source}: {reason}: {detail}{remedy}".replace("\n", "\\n")


_SHOWN_LOST = 3

_NEVER_ALLOWED = (Reason.LOST_ROWS, Reason.CHANGED_RECORD)


class RejectLimit(BaseModel):
    """A limit for rejects: a number of rows, or a percentage of all rows."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal = Field(default=Decimal(0), ge=0)
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> RejectLimit:
        """Parses a limit such as "3" or "0.5%".

        Raises:
            ValueError: if the text is not a limit.
        """
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if not match or (match[2] and Decimal(match[2]) > 100):
            raise ValueError(f"expected a number of rows or a percentage like 0.5%, got {text!r}")
        return cls(amount=Decimal(match[1] or match[2]), percent=bool(match[2]))

    def allows(self, rejected: int, rows: int) -> bool:
        """Returns whether a number of rejects is within the limit.

        Args:
            rejected: number of rejects.
            rows: number of all rows.
        """
        return rejected <= (self.amount * rows / 100 if self.percent else self.amount)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else str(self.amount)


class RejectBudget(BaseModel):
    """Limits for all rejects, and for rejects with single reasons.

    If only reasons have limits, rejects with other reasons are not allowed. Lost rows, whose number
    is unknown, exceed any budget, and do not count towards other limits. So do changed records,
    unless `--on_conflict` says which record to keep.

    Attributes:
        total: the limit for all rejects; None if only reasons have limits.
        reasons: additional limits by reason.

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
        """Parses a budget such as "10", "0.5%" or "10,truncated=5,read_error=1%".

        Raises:
            ValueError: if the text is not a budget.
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
        """Returns the reasons over their limits, sorted, after "all rejects" for the total.

        Args:
            rejects: number of rejects by reason.
            rows: number of all rows.
        """
        limits = {reason.value: limit for reason, limit in self.reasons.items()}
        counted = {name: count for name, count in rejects.items() if name != Reason.LOST_ROWS.value}
        lost = sum(rejects.values()) - sum(counted.values())
        rows -= lost  # a reject for lost rows is not a row itself
        over = {reason.value for reason in _NEVER_ALLOWED if rejects.get(reason.value)}
        for name, count in counted.items():
            # Without a total, a reason without a limit of its own allows no rejects.
            limit = limits.get(name, RejectLimit() if self.total is None else None)
            if limit is not None and not limit.allows(count, rows):
                over.add(name)
        everything = sum(counted.values())
        all_over = self.total is not None and not self.total.allows(everything, rows)
        return (*(["all rejects"] if all_over else []), *sorted(over))

    def describe(self, over: tuple[str, ...]) -> str:
        """Returns the budget as text, with the exceeded limits if reasons have limits."""
        return str(self) if not self.reasons else f"{self}, exceeded by {', '.join(over)}"

    def __str__(self) -> str:
        named = [f"{reason.value}={limit}" for reason, limit in self.reasons.items()]
        return ",".join([*([] if self.total is None else [str(self.total)]), *named])


def lost_rows_message(lost: Iterable[tuple[str, str]]) -> str:
    """Returns the message for lost rows.

    Args:
        lost: source location and detail of each reject for lost rows.
    """
    ordered = sorted(lost)
    shown = "\n  ".join(f"{source}: {detail}" for source, detail in ordered[:_SHOWN_LOST])
    more = len(ordered) - _SHOWN_LOST
    tail = f"\n  and {more:,} more" if more > 0 else ""
    return (
        f"rows of the input are lost:\n  {shown}{tail}\n"
        "Their number is unknown, so no --max_rejects allows it. "
        "Replace the file by an intact copy, or fix it there."
    )


def _reason(name: str) -> Reason:
    if name == Reason.LOST_ROWS.value:
        raise ValueError(f"{name} cannot have a limit: the number of lost rows is unknown")
    known = [reason.value for reason in Reason if reason not in _NEVER_ALLOWED]
    if name not in known:
        guess = did_you_mean(name, known)
        raise ValueError(f"{name!r} is not a reason{guess}; available: {', '.join(known)}")
    return Reason(name)
