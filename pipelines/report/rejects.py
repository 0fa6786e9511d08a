"""Rows that were rejected: some of each reason, with the image or the row itself."""

from __future__ import annotations

import gzip
import hashlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from recordmill.pipelines.report.samples import NO_THUMBNAIL, THUMBNAIL_SIDE, Budget, Thumbnail
from recordmill.schemas.masking import is_masked
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import is_integer
from recordmill.transforms.functional.rendering.drawing import thumbnail_of_damaged
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import open_binary, read_bytes
from recordmill.transforms.storage.formats import format_of
from recordmill.transforms.storage.image_root import OPEN, ImageRootGuard
from recordmill.transforms.workers.sandbox import run_apart

SHOWN_EACH = 6
MAX_TABLE_BYTES = 256 * 2**20
"""How far into a table its faulty rows are looked for."""

_MAX_IMAGE_BYTES = 32 * 2**20
_SECONDS = 10.0
_ROW_BYTES = 400
_PIECE_BYTES = 2**16
"""Of a line, in memory at one time: a line of a gzipped table may well have gigabytes."""

_HEAD_BYTES = 64
_TEXT = ("csv", "tsv", "jsonl")
_JSON = ("coco", "jsonl")

MEANINGS = {
    Reason.READ_ERROR: "The file could not be read: it is missing, or not to be opened.",
    Reason.EMPTY_FILE: "The file has no bytes.",
    Reason.NOT_AN_IMAGE: "The file's content is no image, whatever its name says.",
    Reason.UNSUPPORTED_FORMAT: "An image of a format that is not read, or not to be stored.",
    Reason.UNSUPPORTED_FEATURE: "An image that uses a rare feature of its format.",
    Reason.TRUNCATED: "The file ends before the image does.",
    Reason.CORRUPT: "The file is damaged.",
    Reason.TOO_MANY_PIXELS: "More pixels than max_pixels allows, or than memory holds.",
    Reason.INVALID_DIMENSIONS: "A size that is not allowed.",
    Reason.ANIMATED: "An animation; the schema asks for still images.",
    Reason.TIMEOUT: "Decoding took longer than it may.",
    Reason.DECODER_CRASH: "The decoder crashed; it ran in a separate process.",
    Reason.LOST_ROWS: "Rows that cannot be read or counted: the file is damaged or cut from here.",
    Reason.MALFORMED_ROW: "The row cannot be read as a row of its table.",
    Reason.MISSING_VALUE: "A value that the schema requires is missing.",
    Reason.WRONG_TYPE: "A value is not of the kind that the schema says.",
    Reason.UNKNOWN_LABEL: "The label is none of the classes.",
    Reason.UNKNOWN_SPLIT: "The row's own split is none of those asked for.",
    Reason.DUPLICATE_KEY: "An earlier row has the same key; the first counts.",
    Reason.BAD_BOX: "A box is outside the image, or no box.",
    Reason.UNMATCHED_JOIN: "The row has no partner in the joined table.",
    Reason.OUTSIDE_ROOT: "The path leads out of the folder of images.",
    Reason.DUPLICATE_ORDER: "Another frame of the sequence has the same place.",
    Reason.CONTEXT_DIFFERS: "What a sequence has once is not the same in all its rows.",
    Reason.SEQUENCE_BROKEN: "Another frame of the sequence is rejected, and so is all of it.",
}
_PIXELLESS = {
    Reason.READ_ERROR,
    Reason.EMPTY_FILE,
    Reason.NOT_AN_IMAGE,
    Reason.UNSUPPORTED_FORMAT,
    Reason.TOO_MANY_PIXELS,
    Reason.TIMEOUT,
    Reason.DECODER_CRASH,
    Reason.LOST_ROWS,
    Reason.MALFORMED_ROW,
    Reason.OUTSIDE_ROOT,
}


@dataclass(frozen=True)
class ShownReject:
    """One rejected row.

    Attributes:
        key: its key, or "".
        uri: its image, or "".
        source: file and line.
        detail: what was got and what was expected.
        thumbnail: the image, as far as it can be decoded.
        row: the line as the table has it; "" if it is no text, or cannot be had.
    """

    key: str
    uri: str
    source: str
    detail: str
    thumbnail: Thumbnail = NO_THUMBNAIL
    row: str = ""


@dataclass(frozen=True)
class RejectGroup:
    """The rejects of one reason.

    Attributes:
        reason: one of the closed list.
        meaning: in words.
        count: how many.
        shown: some of them.
    """

    reason: str
    meaning: str
    count: int
    shown: tuple[ShownReject, ...]


def reject_groups(
    dataset: Dataset, budget: Budget, guard: ImageRootGuard = OPEN, input_format: str = "auto"
) -> list[RejectGroup]:
    """Returns the rejects of a run by reason, the most frequent first.

    Args:
        dataset: the dataset.
        budget: of the page's thumbnails.
        guard: no image outside of it is read.
        input_format: of the sources whose names do not say it.
    """
    chosen = _choose(dataset.rejects())
    sources = [reject["source"] for rejects in chosen.values() for reject in rejects]
    rows = _rows(sources, input_format)
    ranked = sorted(dataset.manifest.input.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        RejectGroup(
            reason,
            MEANINGS.get(Reason(reason), ""),
            count,
            tuple(_shown(reject, rows, budget, guard) for reject in chosen.get(reason, [])),
        )
        for reason, count in ranked
    ]


def _choose(rejects: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Returns some of each reason, the same in every run: their order in the file is by chance."""
    kept: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for number, reject in enumerate(rejects):  # a number, so that equals are not compared further
        rank = -int.from_bytes(_digest(reject)[:8], "big")  # a heap's first is its smallest
        heap = kept.setdefault(reject["reason"], [])
        entry = (rank, number, reject)
        if len(heap) < SHOWN_EACH:
            heapq.heappush(heap, entry)
        elif rank > heap[0][0]:
            heapq.heapreplace(heap, entry)
    return {
        reason: sorted((reject for _, _, reject in heap), key=lambda r: (r["source"], r["key"]))
        for reason, heap in kept.items()
    }


def _digest(reject: dict[str, Any]) -> bytes:
    text = "\0".join(reject[name] for name in ("key", "source", "detail"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _shown(
    reject: dict[str, Any], rows: dict[str, str], budget: Budget, guard: ImageRootGuard
) -> ShownReject:
    shown = ShownReject(reject["key"], reject["uri"], reject["source"], reject["detail"])
    if thumbnail := _thumbnail(reject, guard):
        return replace(shown, thumbnail=budget.admit(thumbnail))
    return replace(shown, row=rows.get(reject["source"], ""))


def _thumbnail(reject: dict[str, Any], guard: ImageRootGuard) -> Thumbnail | None:
    """Returns what can be decoded of a rejected row's image, if anything."""
    if not _has_image(reject) or Reason(reject["reason"]) in _PIXELLESS:
        return None
    start, stop = reject.get("start", 0), reject.get("stop", _MAX_IMAGE_BYTES)
    try:
        guard.check(reject["uri"])
        data = read_bytes(reject["uri"], start, min(stop, start + _MAX_IMAGE_BYTES))
        return Thumbnail.of(
            *run_apart(thumbnail_of_damaged, data, THUMBNAIL_SIDE, timeout=_SECONDS)
        )
    except RecordError:
        return None


def _has_image(reject: dict[str, Any]) -> bool:
    """Returns whether the image can be had: not where its address is masked, or it was staged."""
    uri = reject["uri"]
    embedded = "start" not in reject and reject["source"].rpartition(":")[0] == uri
    return bool(uri) and not embedded and not is_masked(uri)


def _rows(sources: Iterable[str], input_format: str) -> dict[str, str]:
    """Returns the lines of text tables that these rows begin at."""
    lines: dict[str, set[int]] = {}
    for source in sources:
        file, _, line = source.rpartition(":")
        if file and is_integer(line) and not is_masked(file):
            lines.setdefault(file, set()).add(int(line))
    return {
        f"{file}:{number}": text
        for file, wanted in lines.items()
        for number, text in _lines(file, wanted, input_format)
    }


def _lines(file: str, wanted: set[int], input_format: str) -> Iterator[tuple[int, str]]:
    """Yields some lines of a table; none of one that is not text, or no longer there."""
    try:
        with open_binary(file) as stream:
            head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES] if hasattr(stream, "peek") else b""
            if not _is_text(file, head, input_format):
                return
            zipped = head[:2] == b"\x1f\x8b"
            text: Any = gzip.GzipFile(fileobj=stream) if zipped else stream
            yield from numbered_lines(cast("BinaryIO", text), wanted)
    except (OSError, EOFError, ValueError):
        return


def _is_text(file: str, head: bytes, input_format: str) -> bool:
    """Returns whether a source has lines, by its own name or signature, or by what was said."""
    found = format_of(file, head)
    if found is None or (found in _JSON and input_format in _JSON):  # .json may be JSON Lines
        found = input_format
    return found in _TEXT


def numbered_lines(stream: BinaryIO, wanted: set[int]) -> Iterator[tuple[int, str]]:
    """Yields the beginnings of some lines by their numbers, from 1; never holds a whole line."""
    number, read, begins = 0, 0, True
    while piece := stream.readline(_PIECE_BYTES):
        number += begins
        if begins and number in wanted:
            text = piece[:_ROW_BYTES].decode("utf-8", "backslashreplace").rstrip("\r\n")
            yield number, text + "…" if len(piece) > _ROW_BYTES else text
        read += len(piece)
        begins = piece.endswith(b"\n")
        if (begins and number >= max(wanted)) or read > MAX_TABLE_BYTES:
            return
