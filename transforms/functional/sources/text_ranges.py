"""Splits large CSV, TSV and JSON Lines files into byte ranges for parallel reads.

A record may begin in one range and end in another, and only the text before a range decides whether
the range begins within quotes. So each range is first scanned for both cases, which needs only its
own bytes. A `RangeScan` holds, for each case, where the first record begins and whether the range
ends within quotes. Joining the scans in file order gives the actual case and line number of every
range. The resulting parts begin and end between records, and are read independently.

The scan applies the csv module's strict rules: a quote inside an unquoted field is text, and after
text that follows a closing quote, the rest of the line is skipped. Most quotes open and close in
turn, so that NumPy finds the few exceptions of a block, and Python handles only those.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.schemas.tables import Part, TableFile
from recordmill.transforms.functional.sources import delimited

# Size from which a file is read in ranges: those of a smaller one would not repay their scan.
LARGE_BYTES = 8 * 2**20

# The largest range, so that a range of a very large file repays a request to an object store, and
# the smallest, so that it repays its element.
RANGE_BYTES, _MIN_RANGE_BYTES = 32 * 2**20, 2 * 2**20

# The number of ranges of a file between the two: enough for many cores.
_RANGES = 64

# Up to this size, no record exceeds the csv module's field limit, which the scan ignores.
MAX_RECORD_BYTES = delimited.MAX_FIELD_CHARACTERS

TEXT_FORMATS = frozenset({*delimited.DELIMITERS, "jsonl"})
_BLOCK_BYTES = 2**19
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _LINE_FEED, _CARRIAGE_RETURN = b'"', b"\n", b"\r"
_LINE_BREAK = re.compile(rb"\r\n?|\n")
_LINE_BREAK_OF_JSON = re.compile(rb"\n")


class Effect(NamedTuple):
    """The result of scanning a range from a given quote state."""

    quoted: bool  # whether the range ends within quotes
    # (byte offset, line breaks before it) of the first record that begins in the range; None if
    # none does.
    entry: tuple[int, int] | None = None
    last: int = 0  # the byte offset of the last record start that is known
    gap: int = 0  # the largest number of bytes between two known record starts


class RangeScan(NamedTuple):
    """The scan of the lines that begin in a range."""

    lines: int
    outside: Effect  # the effect if the first of them begins outside quotes
    inside: Effect  # the effect if the first of them begins within quotes


NO_LINES = RangeScan(0, Effect(quoted=False), Effect(quoted=True))


def is_large(file: TableFile) -> bool:
    """Returns whether a file is read in several ranges, unless it is gzipped."""
    return file.format in TEXT_FORMATS and (file.size or 0) > LARGE_BYTES


def range_bytes_of(size: int) -> int:
    """Returns the size of the ranges of a large file; it does not depend on the number of workers.

    >>> [range_bytes_of(size * 2**20) // 2**20 for size in (9, 256, 1024, 10**6)]
    [2, 4, 16, 32]
    """
    return min(max(size // _RANGES, _MIN_RANGE_BYTES), RANGE_BYTES)


def cut(stream: BinaryIO, file: TableFile, range_bytes: int) -> Iterator[Part]:
    """Yields the ranges of a large file; they are cut anywhere, and must be scanned and aligned.

    Yields the whole file if it is UTF-16 or its header cannot be read.
    """
    header: tuple[str, ...] = ()
    try:
        if file.format in delimited.DELIMITERS:
            if delimited.is_utf16(stream):
                yield Part(file)
                return
            header = delimited.header_of(stream, file)
    except (ValueError, EOFError, OSError):  # reported as a reject when the file is read
        yield Part(file)
        return
    size = file.size or 0
    for start in range(0, size, range_bytes):
        yield Part(file, start=start, stop=min(start + range_bytes, size), header=header)


def scan(stream: BinaryIO, part: Part, block_bytes: int = _BLOCK_BYTES) -> RangeScan | None:
    """Scans the lines that begin in a range of `cut`; None if the file must be read as a whole."""
    delimiter = (
        delimited.delimiter_of(part.file) if part.file.format in delimited.DELIMITERS else None
    )
    if part.stop is None:
        return None
    found = NO_LINES
    try:
        for offset, block in _lines_from(stream, part, block_bytes):
            # Before Python 3.11, the csv module rejects lines with NUL.
            if sys.version_info < (3, 11) and delimiter and b"\0" in block:
                return None
            lines = block if offset or not delimiter else block.removeprefix(_BYTE_ORDER_MARK)
            found = _join(found, _scan_lines(lines, offset, delimiter))
    except (EOFError, OSError):  # reported as a reject when the file is read
        return None
    return found


def align(scanned: Iterable[tuple[Part, RangeScan | None]]) -> list[Part]:
    """Returns the ranges of one file, scanned in any order, moved to begin and end between records.

    Returns the whole file if only a single reader gives the exact rows and rejects: a record is
    longer than `MAX_RECORD_BYTES`, or a range cannot be scanned.
    """
    parts, before = list[Part](), NO_LINES
    for part, found in sorted(scanned, key=lambda pair: pair[0].start):
        if found is None:
            return [Part(part.file)]
        effect = found.inside if before.outside.quoted else found.outside
        if effect.entry is not None:
            start, lines = effect.entry
            parts.append(replace(part, start=start, first=1 + before.lines + lines))
        before = _join(before, found)
    file, effect = parts[0].file, before.outside
    size = file.size or 0
    gap = max(effect.gap, size - effect.last)
    if gap > MAX_RECORD_BYTES and file.format in delimited.DELIMITERS:
        return [Part(file)]
    stops = [*(part.start for part in parts[1:]), size]
    return [replace(part, stop=stop) for part, stop in zip(parts, stops, strict=True)]


def _join(first: RangeScan, then: RangeScan) -> RangeScan:
    """Returns the scan of two adjacent ranges as one; associative, with `NO_LINES` as identity."""
    return RangeScan(
        first.lines + then.lines,
        _continued(first.outside, first.lines, then),
        _continued(first.inside, first.lines, then),
    )


def _continued(effect: Effect, lines: int, then: RangeScan) -> Effect:
    after = then.inside if effect.quoted else then.outside
    gap = max(effect.gap, after.gap)
    if after.entry is None:
        return effect._replace(quoted=after.quoted, gap=gap)
    start, lines_before = after.entry
    if effect.entry is None:
        return after._replace(entry=(start, lines + lines_before), gap=gap)
    return Effect(after.quoted, effect.entry, after.last, max(gap, start - effect.last))


def _scan_lines(data: bytes, offset: int, delimiter: str | None) -> RangeScan:
    """Scans whole lines; `delimiter` is None for JSON Lines, whose records have no line breaks."""
    lines = _count_lines(data, is_csv=delimiter is not None)
    outside = Effect(quoted=False, entry=(offset, 0), last=offset)
    if delimiter is None:
        return RangeScan(lines, outside, outside)
    if _QUOTE not in data:
        return RangeScan(lines, outside, Effect(quoted=True))
    quotes = _Quotes(data, delimiter)
    end = _record_end(data, delimiter)
    if end == len(data):
        inside = Effect(quotes.ends_quoted(quoted=True))
        return RangeScan(lines, outside._replace(quoted=quotes.ends_quoted(quoted=False)), inside)
    # Both cases mostly agree from the end of the first record on, so that the rest is scanned once.
    rest = quotes.index(end)
    quoted = [quotes.ends_quoted(quoted=False, first=rest)]
    if quotes.ends_quoted(quoted=False, stop=rest):
        quoted.append(quotes.ends_quoted(quoted=True, first=rest))
    start = offset + end
    inside = Effect(quoted[0], (start, _count_lines(data[:end], is_csv=True)), start)
    return RangeScan(lines, outside._replace(quoted=quoted[-1]), inside)


class _Quotes:
    """The quotes in some lines, and the exceptions that do not open and close fields in turn."""

    def __init__(self, data: bytes, delimiter: str) -> None:
        self._data = data
        self._field_end = re.compile(rb"[\r\n" + re.escape(delimiter.encode()) + rb"]")
        codes = np.frombuffer(data, np.uint8)
        self._positions = np.flatnonzero(codes == ord(_QUOTE))
        ends = _ends(delimiter)
        # Whether each quote can open a field, and whether it can close one.
        self._opens = ends[codes.take(self._positions - 1, mode="wrap")]
        self._closes = ends[codes.take(self._positions + 1, mode="wrap")]
        self._opens[0] |= self._positions[0] == 0
        self._closes[-1] |= self._positions[-1] == len(codes) - 1
        self._indices: dict[int, list[int]] = {}

    def index(self, position: int) -> int:
        """Returns the index of the first quote at a position or after it."""
        return int(np.searchsorted(self._positions, position))

    def ends_quoted(self, quoted: bool, first: int = 0, stop: int | None = None) -> bool:
        """Returns whether the csv module's reader is within quotes after a range of quotes.

        `stop` is the index after the last quote, which begins a line; None for all.
        """
        stop = len(self._positions) if stop is None else stop
        while True:
            opening = (first + quoted) % 2  # the parity of opening quotes
            exceptions = self._exceptions_of(opening)
            at = bisect_left(exceptions, first)
            if at == len(exceptions) or exceptions[at] >= stop:
                return (stop - first + quoted) % 2 == 1
            exception = exceptions[at]
            # Text within an unquoted field, or an error, which skips the rest of the line.
            skipped = self._field_end if exception % 2 == opening else _LINE_BREAK
            position = int(self._positions[exception])
            end = skipped.search(self._data, position)
            if end is None:
                return False
            first, quoted = exception + self._data.count(_QUOTE, position, end.start()), False

    def _exceptions_of(self, opening: int) -> list[int]:
        if opening not in self._indices:
            fits = self._closes.copy()
            fits[opening::2] = self._opens[opening::2]
            # Bisecting a list is ten times as fast as an array.
            self._indices[opening] = np.flatnonzero(~fits).tolist()
        return self._indices[opening]


@cache
def _ends(delimiter: str) -> npt.NDArray[np.bool_]:
    """Returns which bytes can precede an opening quote or follow a closing one.

    They are delimiters, line breaks, and quotes, which are escaped by doubling them.
    """
    ends = np.zeros(256, np.bool_)
    ends[list(delimiter.encode() + b'\r\n"')] = True
    return ends


def _record_end(data: bytes, delimiter: str) -> int:
    """Returns the offset of the next record if the lines begin within quotes, or the end."""
    quote = data.index(_QUOTE)  # nothing before its line can end the record
    end = 1 + max(data.rfind(_LINE_FEED, 0, quote), data.rfind(_CARRIAGE_RETURN, 0, quote))

    def lines() -> Iterator[str]:
        nonlocal end
        stream = io.BytesIO(data)
        stream.seek(end)
        before = '"'
        for line in io.TextIOWrapper(stream, encoding="latin-1", newline=""):
            end += len(line)  # in Latin-1, a character is a byte
            yield before + line
            before = ""

    csv.field_size_limit(delimited.MAX_FIELD_CHARACTERS)
    with contextlib.suppress(csv.Error):  # the next record starts at the next line
        next(csv.reader(lines(), delimiter=delimiter, strict=True), None)
    return end


def _lines_from(stream: BinaryIO, part: Part, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yields (byte offset, whole lines) of the lines that begin in a range."""
    start, stop = part.start, part.stop or 0
    is_csv = part.file.format in delimited.DELIMITERS
    line_break = _LINE_BREAK if is_csv else _LINE_BREAK_OF_JSON
    # The byte before the range decides whether the range begins with a line.
    offset = max(0, start - 1)
    stream.seek(offset)
    for block in _whole_lines(stream, is_csv, stop + MAX_RECORD_BYTES - offset, block_bytes):
        first, end = 0, len(block)
        if offset < start:
            found = line_break.search(block)
            first = found.end() if found else end
        if offset + end >= stop:
            found = line_break.search(block, stop - 1 - offset)
            end = found.end() if found else end
        if first < end and offset + first < stop:
            yield offset + first, block[first:end]
        offset += len(block)
        if offset >= stop:
            return


def _whole_lines(stream: BinaryIO, is_csv: bool, limit: int, block_bytes: int) -> Iterator[bytes]:
    """Yields a stream in blocks of whole lines; ends after a piece of a line over the limit."""
    rest, read = b"", 0
    while chunk := stream.read(block_bytes):
        read += len(chunk)
        end = chunk.rfind(_LINE_FEED) + 1
        if is_csv:  # a carriage return at the end may be half a line break
            end = max(end, chunk.rfind(_CARRIAGE_RETURN, end, len(chunk) - 1) + 1)
        if end:
            yield b"".join((rest, memoryview(chunk)[:end]))
            rest = chunk[end:]
            continue
        rest += chunk
        if read > limit:
            break
    if rest:
        yield rest


def _count_lines(data: bytes, is_csv: bool) -> int:
    codes = np.frombuffer(data, np.uint8)  # ten times as fast as `bytes.count`
    ends = codes == ord(_LINE_FEED)
    count = np.count_nonzero(ends)
    if is_csv and _CARRIAGE_RETURN in data:
        # Those before a line feed are half of its line break.
        count += np.count_nonzero((codes == ord(_CARRIAGE_RETURN))[:-1] > ends[1:])
    # An incomplete line, or one that ends with a carriage return.
    return int(count) + (not data.endswith(_LINE_FEED))
