"""A row that could not become an example, and the closed list of reasons why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from schemas.masking import masked_source, masked_url
from schemas.records import source_of


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


class RecordError(Exception):
    """One record cannot become an example. Raised by pure functions, made a `Reject` at the edge.

    Attributes:
        reason: one of the closed list.
        detail: what was got and what was expected, in words.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail

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
    """

    key: str
    uri: str
    source: str
    reason: Reason
    detail: str
    split: str = ""

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
        line = json.dumps(
            {
                "key": masked_url(self.key),
                "uri": masked_url(self.uri),
                "source": masked_source(self.source),
                "reason": self.reason.value,
                "detail": self.detail,
            },
            ensure_ascii=False,
        )
        return line.encode("utf-8", "backslashreplace").decode("utf-8")  # names that are no UTF-8
