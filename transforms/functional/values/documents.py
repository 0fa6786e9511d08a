"""Parses JSON and XML of untrusted files, with bounded nesting and sizes.

Python's parser of JSON accepts almost a thousand levels; pickling, encoding or printing such values
exceeds the recursion limit. It also needs all of a text in memory, so a large document is cut
between the entries of its top-level lists, which are found by the nesting of brackets. XML has no
document types, whose entities can expand without end.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.yaml_files import shortened

# The maximum nesting of lists and objects, and of elements.
MAX_DEPTH = 64

# What reading a damaged JSON document raises, also a gzipped one.
DAMAGED_JSON = (OSError, *DAMAGED_STREAM, ValueError)

_TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels of lists and objects"
_NAME = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*[\[{]\Z', re.DOTALL)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _ZERO, _SPACE = b'"0 '
_OPEN, _CLOSE, _BRACKET_BIT = ord("{"), ord("}"), ord("{") ^ ord("[")
_NESTED = (list, dict)  # created once: isinstance() is called for every number
_PARSED_BYTES = 2**18
_MAX_ENTRY, _MAX_OUTLINE = 2**26, 2**24
_NEAR = 30  # characters before and after an error that are shown

# An entry is in the document and in a list; one more level shows that a value is too deep.
_LEVELS_ABOVE = 3


class JsonEntry(NamedTuple):
    """An entry of a top-level list."""

    name: str  # of the list
    value: Any
    fault: str = ""  # the reason to reject it


class _Ambiguous(dict[str, Any]):
    """An object in which a name occurs twice."""

    fault: str


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises ValueError if it is not valid JSON, is nested deeper than `MAX_DEPTH`, repeats a name in
    an object, or has a number beyond the range of floats.
    """
    ambiguous = list[_Ambiguous]()
    try:
        value = json.loads(text, object_pairs_hook=partial(_object, ambiguous), parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if ambiguous:
        raise ValueError(ambiguous[0].fault)
    # Most texts have fewer brackets, and need no check.
    if text.count("[") + text.count("{") > MAX_DEPTH:
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

    def bounded(self, levels: int) -> bytes:
        """Returns the bytes with a 0 in place of values nested deeper; still well-formed JSON."""
        if max(self.outer, self.depths.max(initial=0)) <= levels:
            return self.data
        runs = np.diff(self.positions, prepend=0, append=len(self.data))
        after = np.repeat(np.concatenate(([self.outer], self.depths)), runs)  # each byte
        before = np.concatenate(([self.outer], after[:-1]))
        bounded = np.frombuffer(self.data, np.uint8).copy()
        bounded[(before > levels) | (after > levels)] = _SPACE
        bounded[(before == levels) & (after > levels)] = _ZERO
        return bytes(bounded)


def _nested_chunks(stream: BinaryIO, size: int) -> Iterator[NestedChunk]:
    """Yields a JSON document in chunks of some bytes."""
    stream.seek(0)
    depth, in_text, escaped = 0, False, False
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


def outline_of(stream: BinaryIO) -> Any:
    """Returns a JSON document with top-level lists and objects emptied; or raises ValueError."""
    outline = _Outline()
    for _ in _pieces(stream, outline):
        pass
    return outline.parsed()


def entries_of(
    stream: BinaryIO, names: Collection[str], is_checked: bool = True
) -> Iterator[JsonEntry]:
    """Yields the entries of the document's top-level lists of some names.

    The document is read once, with the entries of one piece at a time in memory. `is_checked`
    checks its other values, too, which takes longer. Raises ValueError for invalid JSON, maybe
    after entries before the error.
    """
    outline = _Outline()
    for name, piece, extra, is_deep in _pieces(stream, outline):
        is_yielded = name in names and piece.startswith(b"[")
        if not (is_yielded or is_checked):
            continue
        ambiguous = list[_Ambiguous]()
        found = json.loads(piece.decode(), object_pairs_hook=partial(_object, ambiguous))
        if is_yielded:
            is_suspect = is_deep or ambiguous
            entries = islice(found, extra, None)
            yield from (JsonEntry(name, v, _fault_of(v) if is_suspect else "") for v in entries)
    outline.parsed()


def _pieces(stream: BinaryIO, outline: _Outline) -> Iterator[tuple[str, bytes, int, bool]]:
    """Yields the top-level lists and objects of a document, with some entries each.

    Yields (name of the value, a list or object, number of entries in front that are none of the
    document, whether it may be nested too deeply), and adds what is around these to the outline.
    """
    name, rest, extra, is_deep = "", b"", 0, False
    for chunk in _nested_chunks(stream, _PARSED_BYTES):
        data, start = chunk.bounded(MAX_DEPTH + _LEVELS_ABOVE), 0
        is_deep |= bool(chunk.depths.max(initial=0) > MAX_DEPTH)
        before = np.concatenate(([chunk.outer], chunk.depths))[:-1]
        edges = before + chunk.depths == 3  # 1 -> 2 opens a top-level value, 2 -> 1 closes it
        for position, depth in zip(chunk.positions[edges], chunk.depths[edges], strict=True):
            if depth == 2:
                outline.add(data[start : position + 1])
                name, rest, extra = outline.name(), b"", 0
            else:
                yield name, rest + data[start : position + 1], extra, is_deep
            start = int(position)
        if chunk.inner < 2:
            outline.add(data[start:])
            continue
        ends = chunk.positions[(before == 3) & (chunk.depths == 2)]  # of entries
        if len(ends) and ends[-1] > start:
            found, start = rest + data[start : ends[-1] + 1], int(ends[-1]) + 1
            is_list = found.startswith(b"[")
            yield name, found + (b"]" if is_list else b"}"), extra, is_deep
            # The comma after them has to follow an entry.
            rest, extra = b"[0" if is_list else b'{"":0', 1
        rest += data[start:]
        if len(rest) > _MAX_ENTRY:
            raise ValueError(f"an entry has more than {_MAX_ENTRY:,} bytes")


class _Outline:
    """A document without what is in its top-level lists and objects."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._size = self._named = 0  # the bytes, and the number of parts before the next name

    def add(self, data: bytes) -> None:
        """Adds the next bytes around the values, which include their brackets."""
        self._kept.append(data)
        self._size += len(data)
        if self._size > _MAX_OUTLINE:
            what = "its top-level strings and numbers have"
            raise ValueError(f"{what} more than {_MAX_OUTLINE:,} bytes")

    def name(self) -> str:
        """Returns the name of the value that was opened last; "" if it has none."""
        found = _NAME.search(b"".join(self._kept[self._named :]))
        self._named = len(self._kept)
        return str(json.loads(found[1])) if found else ""

    def parsed(self) -> Any:
        """Returns the document; raises ValueError if it is not one."""
        return parse_json(b"".join(self._kept).decode("utf-8-sig"))


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond the range of floats")
    return value


def _object(ambiguous: list[_Ambiguous], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        values = _Ambiguous(values)
        values.fault = f"the name {shortened(repeated)} occurs twice"
        ambiguous.append(values)
    return values


def _fault_of(entry: Any) -> str:
    """Returns the reason to reject an entry, or ""."""
    try:
        inner = chain.from_iterable(_levels(entry))
        return next((found.fault for found in inner if isinstance(found, _Ambiguous)), "")
    except ValueError as error:
        return str(error)


def message_of(error: Exception) -> str:
    """Returns the error in a damaged document, with the text near it."""
    what, text, at = str(error), "", 0
    if isinstance(error, json.JSONDecodeError):
        what, text, at = error.msg, error.doc, error.pos
    if isinstance(error, UnicodeDecodeError):
        what, text = "not UTF-8", error.object.decode("utf-8", "replace")
        at = text.find("\ufffd")
    near = text[max(0, at - _NEAR) : at + _NEAR].strip()
    return f"{what} near {shortened(near)}" if near else what


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
