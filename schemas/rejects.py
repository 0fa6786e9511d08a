"""Rejects: rows that did not become records, the rejection reasons, and the reject budget."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag, auto
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from recordmill.schemas.errors import did_you_mean
from recordmill.schemas.masking import masked, masked_json, masked_source
from recordmill.schemas.records import MAX_CHARACTERS, ImageRef, source_of

# "labels.csv:17", or "row 17" of rows in memory.
_LOCATION = re.compile(r"(.*)[: ]([0-9]{1,18})", re.DOTALL)


class _Trait(Flag):
    """What else a rejection reason implies."""

    NONE = 0
    TRANSIENT = auto()  # the machine or network may be the cause, so that a retry may succeed
    NO_PIXELS = auto()  # no part of the image can be shown
    OVER_BUDGET = auto()  # a single reject exceeds any budget


class Reason(str, Enum):
    """The rejection reasons: a closed list, by which reports and budgets count.

    Each has its name in files and on the command line, its meaning, and what to do about a reject
    whose detail does not end with a remedy of its own.
    """

    meaning: str
    remedy: str
    is_transient: bool
    has_pixels: bool
    is_allowed: bool
    _value_: str

    def __new__(
        cls, name: str, meaning: str = "", remedy: str = "", traits: _Trait = _Trait.NONE
    ) -> Reason:
        """Makes a member that is its name, with the rest of its declaration as attributes."""
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.meaning = meaning
        reason.remedy = remedy
        reason.is_transient = _Trait.TRANSIENT in traits
        reason.has_pixels = _Trait.NO_PIXELS not in traits
        reason.is_allowed = _Trait.OVER_BUDGET not in traits
        return reason

    READ_ERROR = (
        "read_error",
        "The image, folder or object cannot be read: permissions, a network or disk "
        "error, or too many bytes.",
        "Check permissions, disk and network.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    MISSING_FILE = (
        "missing_file",
        "No file or object has the path of the image.",
        "Check the path and --image_root.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    EMPTY_FILE = ("empty_file", "The file is empty.", "Replace the file.", _Trait.NO_PIXELS)
    NOT_AN_IMAGE = (
        "not_an_image",
        "The content of the file is not an image, whatever its name.",
        "Replace the file.",
        _Trait.NO_PIXELS,
    )
    UNSUPPORTED_FORMAT = (
        "unsupported_format",
        "The image format cannot be decoded, or is not allowed here.",
        "Convert the file to JPEG or PNG.",
        _Trait.NO_PIXELS,
    )
    UNSUPPORTED_FEATURE = (
        "unsupported_feature",
        "The image uses a feature of its format that readers ignore or show differently.",
        "Convert the file to a plain JPEG or PNG.",
    )
    TRUNCATED = (
        "truncated",
        "The file ends before the image does.",
        "Replace the file with an intact copy.",
    )
    CORRUPT = ("corrupt", "The file is damaged.", "Replace the file with an intact copy.")
    TOO_MANY_PIXELS = (
        "too_many_pixels",
        "More pixels than max_pixels allows or than fit into memory, or outlines that "
        "would take minutes to draw.",
        "Scale the image down, or raise max_pixels with --image.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    INVALID_DIMENSIONS = (
        "invalid_dimensions",
        "A side is too small, or a mask or a stated size differs from that of the image.",
        "Replace the image, its mask, or the stated size.",
    )
    ANIMATED = (
        "animated",
        "The image is animated; the schema expects still images.",
        "Replace the image, or set --image animated=first.",
    )
    LOW_QUALITY = (
        "low_quality",
        "The image has a quality issue that --reject_quality lists.",
        "Replace the image, or remove the issue from --reject_quality.",
    )
    TIMEOUT = (
        "timeout",
        "Decoding took longer than --image_timeout.",
        "Raise --image_timeout.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    DECODER_CRASH = (
        "decoder_crash",
        "The decoder, a process of its own, crashed or ran out of memory.",
        "Convert the file to a plain JPEG or PNG.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    LOST_ROWS = (
        "lost_rows",
        "The file is damaged here, and an unknown number of rows is lost.",
        "Replace the table with an intact copy.",
        _Trait.NO_PIXELS | _Trait.OVER_BUDGET,
    )
    MALFORMED_ROW = ("malformed_row", "The row cannot be parsed.", "Fix the row.", _Trait.NO_PIXELS)
    MISSING_VALUE = (
        "missing_value",
        "A required value is missing.",
        "Fill in the value, or declare a default in the schema.",
    )
    WRONG_TYPE = (
        "wrong_type",
        "A value does not have the type that the schema declares.",
        "Fix the value, or change the kind or shape of the feature in the schema.",
    )
    UNKNOWN_LABEL = (
        "unknown_label",
        "The class name is not in --classes.",
        "Fix the label, or add it to --classes.",
    )
    UNKNOWN_SPLIT = (
        "unknown_split",
        "The split is not in --splits.",
        "Fix the value, empty it if the row is to be divided, or add the split to --splits (which "
        "replaces --folds 2 by fold0=1,fold1=1); with =0, only its own rows are in it.",
    )
    DUPLICATE_KEY = (
        "duplicate_key",
        "An earlier row has the same key; only the first row is used.",
        "Remove one of the rows. If they are boxes, set --schema object_detection and --columns "
        "xmin=C,…; if labels, join the table with --labels; only if records, set --key_column.",
    )
    BAD_BOX = (
        "bad_box",
        "A box without extent, inverted, not a number, or outside of the image.",
        "Fix the box, or leave such boxes out with --boxes invalid=drop.",
    )
    UNMATCHED_JOIN = (
        "unmatched_join",
        "No row of --labels has the value of --join_on.",
        "Add a row to --labels, or check --join_on.",
    )
    # Fingerprints do not cover the targets of symbolic links.
    OUTSIDE_ROOT = (
        "outside_root",
        "The path leads outside of --image_root.",
        "Put the file there, or pass --allow_outside_root.",
        _Trait.TRANSIENT | _Trait.NO_PIXELS,
    )
    # The base version has another record with the key.
    CHANGED_RECORD = (
        "changed_record",
        "With --append, --base has a different record with this key; no budget allows it.",
        "Fix the row, or choose --on_conflict update or keep.",
        _Trait.OVER_BUDGET,
    )
    REMOVED_KEY = (
        "removed_key",
        "With --base, the record with this key was removed from that version or an earlier one.",
        "Remove the row, or pass --max_rejects removed_key=100%.",
        _Trait.NO_PIXELS,  # the report must not show what was removed
    )
    DUPLICATE_ORDER = (
        "duplicate_order",
        "Another frame of the sequence has the same order value.",
        "Give each frame a position of its own.",
    )
    CONTEXT_DIFFERS = (
        "context_differs",
        "Rows of a sequence differ in a context feature, or in what decides their split.",
        "Give all rows of the sequence the same value.",
    )
    SEQUENCE_BROKEN = (
        "sequence_broken",
        "Another row of the same sequence is rejected, or the sequence exceeds 2 GiB.",
        "Fix the other rows of the sequence.",
    )


# Maximum characters of a detail, which may quote values with millions of characters.
MAX_DETAIL = 1000


def _bounded(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL else f"{detail[: MAX_DETAIL - 1]}…"


def _bounded_location(text: str) -> str:
    """Returns a location without its middle if it is too long: a line number is at its end."""
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else f"{text[: half - 1]}…{text[-half:]}"


class RecordError(Exception):
    """A row cannot become a record; raised by pure functions, and converted to a `Reject`."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = _bounded(
            masked(detail)
        )  # here, because it reaches rejects, logs and messages
        super().__init__(f"{reason.value}: {self.detail}")

    def __reduce__(self) -> tuple[type[RecordError], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Adds where a value is to a RecordError that the block raises."""
    try:
        yield
    except RecordError as error:
        raise RecordError(error.reason, f"{where}: {error.detail}") from None


@dataclass(frozen=True)
class Reject:
    """A rejected row, without its image."""

    key: str  # the row's key, or "" if the row is too damaged to have a key
    uri: str
    source: str  # the source location of the row, as in "labels.csv:17"
    reason: Reason
    detail: str  # a message: what is wrong, and what was expected
    split: str = ""  # the split that the row was assigned to, or "". It is not written to rejects/
    start: int | None = None  # first byte of the image within the file, or None for the whole file
    stop: int | None = None

    def __post_init__(self) -> None:
        """Masks secrets in the detail, and limits all lengths."""
        object.__setattr__(self, "detail", _bounded(masked(self.detail)))
        for name in ("key", "uri", "source"):
            object.__setattr__(self, name, _bounded_location(getattr(self, name)))

    @classmethod
    def of(cls, ref: ImageRef, reason: Reason, detail: str, split: str = "") -> Reject:
        """Returns the reject of a bound row."""
        start, stop = (None, None) if ref.staged else (ref.start, ref.stop)
        return cls(ref.key, ref.shown_uri, ref.source, reason, detail, split, start, stop)

    @classmethod
    def of_malformed_row(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject of a row that is too damaged to have a key."""
        return cls("", "", source_of(file, line), Reason.MALFORMED_ROW, detail)

    @classmethod
    def of_lost_rows(cls, file: str, line: int, detail: str) -> Reject:
        """Returns the reject that represents an unknown number of rows."""
        return cls("", "", source_of(file, line), Reason.LOST_ROWS, detail)

    def __lt__(self, other: Reject) -> bool:
        """Returns whether it is before another one in the order of the tables."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[str, int, str]:
        located = _LOCATION.fullmatch(self.source)
        file, line = (located[1], int(located[2])) if located else (self.source, 0)
        return file, line, self.detail

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


def reject_lines(rejects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the indented line of each reject in the terminal: where, what, and a remedy.

    >>> detail = "a.jpg: No such file or directory"
    >>> reject_lines([{"source": "t.csv:2", "reason": "missing_file", "detail": detail}])[0][2:]
    't.csv:2: missing_file: a.jpg: No such file or directory. Check the path and --image_root.'
    """
    lines = []
    for reject in rejects:
        source, reason, detail = (reject[name] for name in ("source", "reason", "detail"))
        remedy = "" if detail.endswith(".") else f". {Reason(reason).remedy}"
        lines.append(f"  {source}: {reason}: {detail}{remedy}".replace("\n", "\\n"))
    return lines


def reason_counts(reasons: Mapping[str, int]) -> str:
    """Returns the number of rejects by reason: "1 corrupt, 2,000 truncated"."""
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


class RejectLimit(BaseModel):
    """A limit for rejects: a number of rows, or a percentage of all rows."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal = Field(default=Decimal(0), ge=0)
    percent: bool = False

    @classmethod
    def parse(cls, text: str) -> RejectLimit:
        """Parses a limit such as "3" or "0.5%"; raises ValueError for other texts."""
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?)%", text.strip())
        if not match or (match[2] and Decimal(match[2]) > 100):
            raise ValueError(f"expected a number of rows or a percentage like 0.5%, got {text!r}")
        return cls(amount=Decimal(match[1] or match[2]), percent=bool(match[2]))

    def allows(self, rejected: int, rows: int) -> bool:
        """Returns whether a number of rejects is within the limit."""
        return rejected <= (self.amount * rows / 100 if self.percent else self.amount)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else str(self.amount)


class RejectBudget(BaseModel):
    """Limits for all rejects, and for rejects with single reasons.

    If only reasons have limits, rejects with other reasons are not allowed. Lost rows, whose number
    is unknown, exceed any budget, and do not count towards other limits. So do changed records,
    unless `--on_conflict` says which record to keep.

    >>> RejectBudget.parse("5%").exceeded({"truncated": 5}, rows=100)
    ()
    >>> RejectBudget.parse("10,truncated=2").exceeded({"truncated": 5}, rows=100)
    ('truncated',)
    >>> RejectBudget.parse("100%").exceeded({"lost_rows": 1}, rows=100)
    ('lost_rows',)
    """

    model_config = ConfigDict(frozen=True)

    # The limit for all rejects; None if only reasons have limits.
    total: RejectLimit | None = RejectLimit()
    reasons: dict[Reason, RejectLimit] = {}

    @classmethod
    def parse(cls, text: str) -> RejectBudget:
        """Parses a budget such as "10", "0.5%" or "10,truncated=5,read_error=1%".

        Raises ValueError if the text is not a budget.
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
        """Returns the reasons over their limits, sorted, after "all rejects" for the total."""
        limits = {reason.value: limit for reason, limit in self.reasons.items()}
        counted = {name: count for name, count in rejects.items() if name != Reason.LOST_ROWS.value}
        lost = sum(rejects.values()) - sum(counted.values())
        rows -= lost  # a reject for lost rows is not a row itself
        over = {each.value for each in Reason if not each.is_allowed and rejects.get(each.value)}
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


def _reason(name: str) -> Reason:
    if name == Reason.LOST_ROWS.value:
        raise ValueError(f"{name} cannot have a limit: the number of lost rows is unknown")
    known = [reason.value for reason in Reason if reason.is_allowed]
    if name not in known:
        guess = did_you_mean(name, known)
        raise ValueError(f"{name!r} is not a reason{guess}; available: {', '.join(known)}")
    return Reason(name)
