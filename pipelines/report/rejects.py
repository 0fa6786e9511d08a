"""Shows examples of rejected rows per reason, with the image or the line of the table."""

from __future__ import annotations

import gzip
import hashlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from recordmill.pipelines.report.samples import (
    NO_THUMBNAIL,
    THUMBNAIL_SIDE,
    Thumbnail,
    ThumbnailBudget,
)
from recordmill.schemas.masking import is_masked
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import is_integer
from recordmill.transforms.functional.rendering.drawing import thumbnail_of_damaged
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import open_binary, read_bytes
from recordmill.transforms.storage.formats import format_of
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard
from recordmill.transforms.workers.sandbox import run_in_subprocess

SHOWN_PER_REASON = 6

# Bytes of a table that are searched for the lines of rejected rows.
MAX_TABLE_BYTES = 256 * 2**20

_MAX_IMAGE_BYTES = 32 * 2**20
_SECONDS = 10.0

# Maximum number of bytes to show of a line.
_ROW_BYTES = 400

# Maximum number of bytes of a line in memory: a line of a gzipped table can have gigabytes.
_PIECE_BYTES = 2**16

_SIGNATURE_BYTES = 64
_TEXT = ("csv", "tsv", "jsonl")
_JSON = ("coco", "jsonl")


@dataclass(frozen=True)
class ShownReject:
    """One rejected row."""

    key: str
    uri: str  # the path or URL of the image, or ""
    source: str
    detail: str  # the message: what was expected, and what was found
    thumbnail: Thumbnail = NO_THUMBNAIL  # the part of the image that can be decoded
    row: str = ""  # the line of a text table; "" for other sources, or if it cannot be read again


@dataclass(frozen=True)
class RejectGroup:
    """The rejects of one reason."""

    reason: str  # the value of a `Reason`
    meaning: str
    count: int
    shown: tuple[ShownReject, ...]


def reject_groups(
    dataset: Dataset,
    budget: ThumbnailBudget,
    guard: ImageRootGuard = UNRESTRICTED,
    input_format: str = "auto",
) -> list[RejectGroup]:
    """Returns the rejects of a run by reason, most frequent first."""
    chosen = _choose(dataset.rejects())
    sources = [reject["source"] for rejects in chosen.values() for reject in rejects]
    rows = _rows(sources, input_format)
    ranked = sorted(dataset.manifest.input.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        RejectGroup(
            reason,
            Reason(reason).meaning,
            count,
            tuple(_shown(reject, rows, budget, guard) for reject in chosen.get(reason, [])),
        )
        for reason, count in ranked
    ]


def _choose(rejects: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Returns a few rejects of each reason, independent of their order in the file."""
    # Per reason, a heap of the rejects with the smallest digests: bounded memory, and the same
    # choice in every run. {reason: [(rank, number, reject)]}
    kept: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for number, reject in enumerate(rejects):  # the number breaks ties: dicts cannot be compared
        rank = -int.from_bytes(_digest(reject)[:8], "big")  # negative, for heapq's min-heap
        heap = kept.setdefault(reject["reason"], [])
        entry = (rank, number, reject)
        if len(heap) < SHOWN_PER_REASON:
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
    reject: dict[str, Any], rows: dict[str, str], budget: ThumbnailBudget, guard: ImageRootGuard
) -> ShownReject:
    shown = ShownReject(reject["key"], reject["uri"], reject["source"], reject["detail"])
    if thumbnail := _thumbnail(reject, guard):
        return replace(shown, thumbnail=budget.admit(thumbnail))
    return replace(shown, row=rows.get(reject["source"], ""))


def _thumbnail(reject: dict[str, Any], guard: ImageRootGuard) -> Thumbnail | None:
    """Returns a thumbnail of the part of a rejected image that can be decoded, or None."""
    if not (_has_image(reject) and Reason(reject["reason"]).has_pixels):
        return None
    # Images in archives have a byte range; others are whole files, read up to a limit.
    start, stop = reject.get("start", 0), reject.get("stop", _MAX_IMAGE_BYTES)
    try:
        guard.check(reject["uri"])
        data = read_bytes(reject["uri"], start, min(stop, start + _MAX_IMAGE_BYTES))
        return Thumbnail.of(
            *run_in_subprocess(thumbnail_of_damaged, data, THUMBNAIL_SIDE, timeout=_SECONDS)
        )
    except RecordError:
        return None


def _has_image(reject: dict[str, Any]) -> bool:
    """Returns whether the image can be read again: it is not embedded, and its URL not masked."""
    uri = reject["uri"]
    # An image embedded in a table has no byte range, and its staging file has been deleted.
    embedded = "start" not in reject and reject["source"].rpartition(":")[0] == uri
    return bool(uri) and not embedded and not is_masked(uri)


def _rows(sources: Iterable[str], input_format: str) -> dict[str, str]:
    """Returns the lines of text tables, by their source locations (FILE:LINE)."""
    # {file: {line number}}, so that each table is read once
    lines: dict[str, set[int]] = {}
    for source in sources:
        file, _, line = source.rpartition(":")
        if file and is_integer(line) and not is_masked(file):
            lines.setdefault(file, set()).add(int(line))
    return {
        f"{file}:{number}": text
        for file, numbers in lines.items()
        for number, text in _lines(file, numbers, input_format)
    }


def _lines(file: str, numbers: set[int], input_format: str) -> Iterator[tuple[int, str]]:
    """Yields lines of a table by number; none if it is not a text table or cannot be read again."""
    try:
        with open_binary(file) as stream:
            head = (
                stream.peek(_SIGNATURE_BYTES)[:_SIGNATURE_BYTES] if hasattr(stream, "peek") else b""
            )
            if not _is_text(file, head, input_format):
                return
            zipped = head[:2] == b"\x1f\x8b"
            text: Any = gzip.GzipFile(fileobj=stream) if zipped else stream
            yield from _numbered_lines(cast("BinaryIO", text), numbers)
    except (OSError, EOFError, ValueError):
        return


def _is_text(file: str, head: bytes, input_format: str) -> bool:
    """Returns whether a source is a text table, by its name, its signature or the input format."""
    detected = format_of(file, head)
    if detected is None or (detected in _JSON and input_format in _JSON):
        detected = input_format  # a file named .json can contain JSON Lines
    return detected in _TEXT


def _numbered_lines(stream: BinaryIO, numbers: set[int]) -> Iterator[tuple[int, str]]:
    """Yields the beginnings of lines of a text with their numbers, from 1, in bounded memory."""
    number, begun, read = 1, b"", 0  # the line in which the next block begins, and its beginning
    while number <= max(numbers) and read <= MAX_TABLE_BYTES:
        if not (block := stream.read(_PIECE_BYTES)):
            break
        read += len(block)
        after = number + block.count(b"\n")
        # A block without such a line is not split: a table can have millions of blank lines.
        if any(number <= n < after for n in numbers):
            for i, line in enumerate((begun + block).split(b"\n")[:-1], number):
                if i in numbers:
                    yield i, _beginning(line)
        begun = (block if after > number else begun + block)[block.rfind(b"\n") + 1 :]
        number, begun = after, begun[: _ROW_BYTES + 1]
    if begun and number in numbers:
        yield number, _beginning(begun)


def _beginning(line: bytes) -> str:
    text = line[:_ROW_BYTES].decode("utf-8", "backslashreplace").rstrip("\r")
    return text + "…" if len(line) > _ROW_BYTES else text
