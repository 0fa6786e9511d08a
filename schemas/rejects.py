"""A row that could not become an example, and the closed list of reasons why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

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
        self.detail = _bounded(masked(detail))  # wherever it goes: rejects, receipts, messages
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
