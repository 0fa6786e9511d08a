"""Parses JSON and XML of untrusted files, with bounded nesting, sizes and token lengths.

Python's parser accepts almost a thousand levels; pickling, encoding or printing such values exceeds
the recursion limit. ijson stores the path of every level, reads an unfinished token again with
every piece of the document, and crashes at integers that Python does not convert (without
`use_float`). All of this is therefore bounded here, in the only module that imports it. XML has no
document types, whose entities can expand without end.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import ijson
import numpy as np

from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.yaml_files import shortened

# The maximum nesting of lists and objects, and of elements.
MAX_DEPTH = 64

# What reading a damaged JSON document raises, also a gzipped one.
DAMAGED_JSON = (ijson.JSONError, OSError, *DAMAGED_STREAM, ValueError)

_TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels of lists and objects"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _ZERO, _SPACE = b'"0 '
_OPEN, _CLOSE, _BRACKET_BIT = ord("{"), ord("}"), ord("{") ^ ord("[")
_NESTED = (list, dict)  # created once: isinstance() is called for every number
_OUTLINE_BYTES = 2**20
_PARSED_BYTES = 2**16
_MAX_OUTLINE = 16 * 2**20
# The maximum bytes of a string; and of a number, beyond those of the piece that it begins in.
_MAX_TEXT, _MAX_NUMBER = 16 * 2**20, 2**16
_SEPARATORS = [bytes([byte]) for byte in b',:[]{}" \n\r\t']

# An entry is in the document and in a list; one more level shows that a value is too deep.
_LEVELS_ABOVE = 3


class JsonObject(dict[str, Any]):
    """An object that a streaming parser fills."""

    # The first name that occurs twice in it; None if all are different.
    duplicate_name: str | None = None

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and self.duplicate_name is None:
            self.duplicate_name = name
        super().__setitem__(name, value)


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises ValueError if it is not valid JSON, is nested deeper than `MAX_DEPTH`, repeats a name in
    an object, or has a number beyond the range of floats.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if (
        text.count("[") + text.count("{") > MAX_DEPTH
    ):  # most texts have fewer brackets, and need no check
        for _ in _levels(value):
            pass
    return value


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yields the lists and objects of each level of a value; raises ValueError if there are many.

    The values of one level are looked at together, as a call for each takes longer than its look.
    """
    level = [value] if isinstance(value, _NESTED) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        yield level
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, _NESTED)
        ]
    if level:
        raise ValueError(_TOO_DEEP)


class NestedChunk(NamedTuple):
    """A chunk of a JSON document with its nesting depths."""

    data: bytes  # the bytes
    outer: int
    positions: np.ndarray  # int64[n], the offsets of brackets outside of strings
    depths: np.ndarray  # int64[n], the nesting depth after each bracket

    @property
    def inner(self) -> int:
        """The nesting depth after the chunk."""
        return int(self.depths[-1]) if len(self.depths) else self.outer

    def around(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the nesting depths before and after each byte: int64[len(data)] each."""
        runs = np.diff(self.positions, prepend=0, append=len(self.data))
        after = np.repeat(np.concatenate(([self.outer], self.depths)), runs)
        return np.concatenate(([self.outer], after[:-1])), after

    def bounded(self, levels: int) -> bytes:
        """Returns the bytes with a 0 in place of values nested deeper; still well-formed JSON.

        A streaming parser stores the path of every level: for a document of only brackets,
        memory grows with the square of its size.
        """
        if max(self.outer, self.depths.max(initial=0)) <= levels:
            return self.data
        before, after = self.around()
        bounded = np.frombuffer(self.data, np.uint8).copy()
        bounded[(before > levels) | (after > levels)] = _SPACE
        bounded[(before == levels) & (after > levels)] = _ZERO
        return bytes(bounded)


def _nested_chunks(stream: BinaryIO, size: int) -> Iterator[NestedChunk]:
    """Yields a JSON document in chunks of some bytes; raises ValueError if a token is too long."""
    stream.seek(0)
    depth, in_text, escaped, unfinished = 0, False, False, 0
    while data := stream.read(size):
        plain = b" " + data[1:] if escaped else data
        # Blank out escapes, so that every remaining quote opens or closes a string.
        if escaped := b"\\" in plain:
            plain = _ESCAPE.sub(b"  ", plain)
            escaped = plain.endswith(b"\\")
        codes = np.frombuffer(plain, np.uint8)
        # Few bytes are quotes or brackets, so everything after this search works on their offsets.
        quotes = np.flatnonzero(codes == _QUOTE)
        folded = codes | _BRACKET_BIT
        positions = np.flatnonzero((folded == _OPEN) | (folded == _CLOSE))
        # A bracket after an odd number of quotes is inside a string.
        positions = positions[(np.searchsorted(quotes, positions) + in_text) % 2 == 0]
        depths = depth + np.cumsum(np.where(folded[positions] == _OPEN, 1, -1))
        chunk = NestedChunk(data, depth, positions, depths)
        yield chunk
        depth = chunk.inner
        in_text ^= len(quotes) % 2 == 1
        unfinished = _unfinished(plain, quotes, in_text, unfinished)


def _unfinished(data: bytes, quotes: np.ndarray, in_text: bool, before: int) -> int:
    """Returns the bytes of the token that a chunk ends in, of which `before` precede the chunk."""
    if in_text:
        last = int(quotes[-1]) if len(quotes) else -1
    else:
        last = max(data.rfind(separator) for separator in _SEPARATORS)
    length = len(data) - 1 - last + (before if last < 0 else 0)
    if length > (_MAX_TEXT if in_text else _MAX_NUMBER):
        what, limit = ("string", _MAX_TEXT) if in_text else ("number", _MAX_NUMBER)
        raise ValueError(f"a {what} has more than {limit:,} bytes")
    return length


def outline_of(stream: BinaryIO) -> Any:
    """Returns a JSON document with top-level lists and objects emptied; or raises ValueError."""
    kept, size = list[bytes](), 0
    for chunk in _nested_chunks(stream, _OUTLINE_BYTES):
        before, after = chunk.around()
        # Keeps the brackets of the top-level values, but nothing between them.
        shallow = np.minimum(before, after) <= 1
        kept.append(np.frombuffer(chunk.data, np.uint8)[shallow].tobytes())
        size += len(kept[-1])
        if size > _MAX_OUTLINE:
            raise ValueError(
                f"its top-level strings and numbers have more than {_MAX_OUTLINE:,} bytes"
            )
    return parse_json(b"".join(kept).decode("utf-8-sig"))


def entries_of(
    stream: BinaryIO, outline: Any, names: Collection[str], is_checked: bool = True
) -> Iterator[tuple[str, Any]]:
    """Yields the entries of the document's top-level lists as (name of the list, entry).

    The document is parsed once, with one entry at a time in memory. Values one level below
    `MAX_DEPTH` are 0. `is_checked` checks the other lists, too, which takes longer. Raises
    ijson.JSONError for invalid JSON, and ValueError if it does not match its `outline_of`.
    """
    if not isinstance(outline, dict):
        return
    nested = [(n, type(value)) for n, value in outline.items() if isinstance(value, list | dict)]
    parser: Any = None
    current, found, is_skipped, is_yielded = -1, ijson.sendable_list(), False, False
    for number, piece in _nested_values(stream):
        if number != current:
            # One parser for each top-level value. "\0" matches hardly any path, so almost nothing
            # is built of what is not yielded.
            if number >= len(nested):
                raise ValueError("it changed while it was read")
            name, type_ = nested[number]
            is_skipped = not is_checked and name not in names
            is_yielded = name in names and type_ is list
            path = "item" if is_yielded else "\0"
            parser = ijson.items_coro(found, path, use_float=True, map_type=JsonObject)
            current = number
        if is_skipped:
            continue
        parser.send(piece)
        if is_yielded:
            yield from ((name, entry) for entry in found)
        found.clear()


def values_at(stream: BinaryIO, path: str) -> Iterator[Any]:
    """Yields the values at a path such as "images.item.file_name", until the document is damaged.

    In place of values nested deeper than the path can reach there is a 0.
    """
    found = ijson.sendable_list()
    parser = ijson.items_coro(found, path, use_float=True, map_type=JsonObject)
    try:
        for chunk in _nested_chunks(stream, _PARSED_BYTES):
            parser.send(chunk.bounded(MAX_DEPTH + _LEVELS_ABOVE))
            yield from found
            found.clear()
    except DAMAGED_JSON:
        yield from found


def _nested_values(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yields the top-level lists and objects of a document in pieces: (number, bytes)."""
    number = -1
    for chunk in _nested_chunks(stream, _PARSED_BYTES):
        data, start = chunk.bounded(MAX_DEPTH + _LEVELS_ABOVE), 0
        before = np.concatenate(([chunk.outer], chunk.depths))[:-1]
        edges = before + chunk.depths == 3  # 1 -> 2 opens a top-level value, 2 -> 1 closes it
        for position, depth in zip(chunk.positions[edges], chunk.depths[edges], strict=True):
            if depth == 2:
                number, start = number + 1, position
            else:
                yield number, data[start : position + 1]
        if chunk.inner >= 2:
            yield number, data[start:]


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond the range of floats")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the name {repeated[:80]!r} occurs twice")
    return values


def fault_of(entry: Any) -> str:
    """Returns the reason to reject an entry, or ""."""
    try:
        for level in _levels(entry):
            for found in level:
                if isinstance(found, JsonObject) and found.duplicate_name is not None:
                    return f"the name {shortened(found.duplicate_name)} occurs twice in one object"
    except ValueError as error:
        return str(error)
    return ""


def message_of(error: Exception) -> str:
    """Returns the error in a damaged document, with the text near it."""
    first = error.args[0] if error.args else ""
    text = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(error)
    # ijson's messages have the text near the error on the second line, and an arrow on the third.
    what, _, excerpt = text.partition("\n")
    near = excerpt.partition("\n")[0].strip()
    return f"{what.strip()} near {shortened(near)}" if near else what.strip()


# What `parse_xml` and `children_of` raise for files that are not valid.
DAMAGED_XML = (expat.ExpatError, ValueError, LookupError)

# The most elements in one that is returned: an object has about 10, and one takes 200 bytes.
_MAX_ELEMENTS = 2**20
_MAX_BYTES = 64 * 2**20  # the most bytes of such an element
_CHUNK_BYTES = 2**18
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.-]+)["']""")
_MULTIBYTE = frozenset((
    "big5", "big5_hkscs", "gb2312", "gbk", "gb18030", "cp936", "cp950",
    "euc_kr", "cp949", "ks_c_5601_1987", "shift_jis", "sjis", "cp932",
    "euc_jp", "iso_2022_jp", "iso_2022_kr", "johab", "hz_gb_2312",
))  # fmt: skip


class Child(NamedTuple):
    """An element in the root of a document."""

    line: int  # of its start, from 1
    element: Element


def parse_xml(data: bytes) -> Element:
    """Returns the root of a document; raises one of `DAMAGED_XML`."""
    data, encoding = _transcoded(data)
    reader = _Reader(encoding, level=0)
    reader.parser.Parse(data, True)
    return reader.found[0].element


def children_of(stream: BinaryIO) -> Iterator[Child]:
    """Yields the elements in the root of a document, one at a time; raises one of `DAMAGED_XML`."""
    reader, waiting = _Reader(None, level=1), 0
    while chunk := stream.read(_CHUNK_BYTES):
        reader.parser.Parse(chunk)
        waiting = 0 if reader.found else waiting + len(chunk)
        if waiting > _MAX_BYTES:
            raise ValueError(f"expected elements of at most {_MAX_BYTES:,} bytes, got more")
        yield from reader.found
        reader.found.clear()
    reader.parser.Parse(b"", True)


class _Reader:
    """Collects the elements at a level of nesting: that of the root is 0."""

    def __init__(self, encoding: str | None, level: int) -> None:
        self.parser, self._level = expat.ParserCreate(encoding), level
        self.found: list[Child] = []
        self._depth = self._total = self._line = 0
        self._builder = TreeBuilder()
        self.parser.buffer_text = True
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._stop

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth == self._level:
            self._builder, self._total = TreeBuilder(), 0
            self._line = self.parser.CurrentLineNumber
        self._depth, self._total = self._depth + 1, self._total + 1
        if self._total > _MAX_ELEMENTS:
            raise ValueError(f"expected at most {_MAX_ELEMENTS:,} elements, got more")
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested too deeply: more than {MAX_DEPTH} levels of elements")
        if self._depth > self._level:  # without the prefix of a namespace
            self._builder.start(name.rpartition(":")[2], attributes)

    def _end(self, name: str) -> None:
        if self._depth > self._level:
            self._builder.end(name.rpartition(":")[2])
        self._depth -= 1
        if self._depth == self._level:
            self.found.append(Child(self._line, self._builder.close()))

    def _text(self, text: str) -> None:
        if self._depth > self._level:
            self._builder.data(text)

    def _stop(self, *_: object) -> None:
        # Entities can expand without end, or name files: no format of annotations needs them.
        raise ValueError("it has a document type (DOCTYPE). Remove it")


def _transcoded(data: bytes) -> tuple[bytes, str | None]:
    """Returns XML, and its encoding if that is another one than it declares.

    Expat reads no declared encoding with characters of several bytes, except for those of Unicode.
    """
    declared = _DECLARED.match(data)
    name = declared[1].decode("ascii").lower().replace("-", "_") if declared else ""
    return (data.decode(name).encode(), "utf-8") if name in _MULTIBYTE else (data, None)
