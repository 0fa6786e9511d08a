"""JSON as sources hold it: parsed strictly, and never nested deeper than values can be handled.

Python's own parser accepts values of almost a thousand levels; what handles them afterwards
(pickling, encoding, printing) recurses deeper than Python allows. So nesting is bounded here, once.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import ijson
import numpy as np

MAX_DEPTH = 64
"""How many lists and objects can lie within each other."""

_TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} lists and objects within each other"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _ZERO, _SPACE = b'"0 '
_OPEN, _CLOSE, _BRACKET_BIT = ord("{"), ord("}"), ord("{") ^ ord("[")
_NESTED = (list, dict)  # of each number of each outline is asked whether it is one
_OUTLINE_BYTES = 2**20
_PARSED_BYTES = 2**16
_MAX_OUTLINE = 16 * 2**20
_LEVELS_ABOVE = 3
"""Of an entry: it is in an object, with a list. One more shows what is too deep."""


class JsonObject(dict[str, Any]):
    """An object as a streaming parser fills it.

    Attributes:
        repeated: the first name that occurs in it twice; None if all are different.
    """

    repeated: str | None = None

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and self.repeated is None:
            self.repeated = name
        super().__setitem__(name, value)


def parse_json(text: str) -> Any:
    """Returns the value that a JSON text holds.

    Raises:
        ValueError: if it is not JSON, is nested deeper than `MAX_DEPTH`, names something twice in
            one object, or holds a number beyond the range of floats.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if text.count("[") + text.count("{") > MAX_DEPTH:  # most have fewer, and need no look
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Rejects a value that is nested deeper than `MAX_DEPTH`.

    Raises:
        ValueError: if so.
    """
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MAX_DEPTH):
        level = [item for outer in level for item in _nested_in(outer)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def repeated_name(value: Any) -> str | None:
    """Returns a name that occurs twice in one `JsonObject` of a value; None if there is none."""
    if isinstance(value, JsonObject) and value.repeated is not None:
        return value.repeated
    found = (repeated_name(item) for item in _nested_in(value))
    return next((name for name in found if name is not None), None)


class NestedChunk(NamedTuple):
    """Some bytes of a JSON document, with how deep they lie.

    Attributes:
        data: the bytes.
        outer: how many brackets are open before them.
        positions: of their brackets, int64; texts hold none.
        depths: how many are open after each bracket, int64.
    """

    data: bytes
    outer: int
    positions: np.ndarray
    depths: np.ndarray

    @property
    def inner(self) -> int:
        """How many brackets are open after them."""
        return int(self.depths[-1]) if len(self.depths) else self.outer

    def around(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many brackets are open before and after each byte."""
        runs = np.diff(self.positions, prepend=0, append=len(self.data))
        after = np.repeat(np.concatenate(([self.outer], self.depths)), runs)
        return np.concatenate(([self.outer], after[:-1])), after

    def bounded(self, levels: int) -> bytes:
        """Returns the bytes without what lies deeper; a 0 in its place leaves them well-formed.

        A streaming parser holds the path to every level: for a document of brackets, memory is
        the square of its size.
        """
        if max(self.outer, self.depths.max(initial=0)) <= levels:
            return self.data
        before, after = self.around()
        bounded = np.frombuffer(self.data, np.uint8).copy()
        bounded[(before > levels) | (after > levels)] = _SPACE
        bounded[(before == levels) & (after > levels)] = _ZERO
        return bytes(bounded)


def nested_chunks(stream: BinaryIO, size: int) -> Iterator[NestedChunk]:
    """Yields a JSON document from its beginning on, in chunks of so many bytes."""
    stream.seek(0)
    depth, in_text, escaped = 0, False, False
    while data := stream.read(size):
        plain = b" " + data[1:] if escaped else data
        if escaped := b"\\" in plain:
            plain = _ESCAPE.sub(b"  ", plain)
            escaped = plain.endswith(b"\\")
        codes = np.frombuffer(plain, np.uint8)
        # Few bytes are quotes or brackets: beyond the search, all is done on their positions.
        quotes = np.flatnonzero(codes == _QUOTE)
        folded = codes | _BRACKET_BIT
        positions = np.flatnonzero((folded == _OPEN) | (folded == _CLOSE))
        positions = positions[(np.searchsorted(quotes, positions) + in_text) % 2 == 0]
        depths = depth + np.cumsum(np.where(folded[positions] == _OPEN, 1, -1))
        chunk = NestedChunk(data, depth, positions, depths)
        yield chunk
        depth = chunk.inner
        in_text ^= len(quotes) % 2 == 1


def outline_of(stream: BinaryIO) -> Any:
    """Returns a JSON document from which all within its own lists and objects is left out.

    Raises:
        ValueError: if it is not JSON, or names something twice; as far as its outline shows.
    """
    kept, size = list[bytes](), 0
    for chunk in nested_chunks(stream, _OUTLINE_BYTES):
        before, after = chunk.around()
        shallow = np.minimum(before, after) <= 1
        kept.append(np.frombuffer(chunk.data, np.uint8)[shallow].tobytes())
        size += len(kept[-1])
        if size > _MAX_OUTLINE:
            raise ValueError(f"its own texts and numbers have more than {_MAX_OUTLINE:,} bytes")
    return parse_json(b"".join(kept).decode("utf-8-sig"))


def entries_of(stream: BinaryIO, outline: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a document's own lists, with the list's name, as they come.

    The document is parsed once, and one entry at a time is in memory. Objects are `JsonObject`s;
    what lies too deep within an entry is replaced by a 0, one level below `MAX_DEPTH`.

    Args:
        stream: the document.
        outline: what `outline_of` returns of it.
        names: the lists; the others are only checked to be well-formed.

    Raises:
        ijson.JSONError: if it is not JSON.
        ValueError: if it is another document than that of the outline.
    """
    if not isinstance(outline, dict):
        return
    nested = [(n, type(value)) for n, value in outline.items() if isinstance(value, list | dict)]
    parser: Any = None
    current, found = -1, ijson.sendable_list()
    for number, piece in _nested_values(stream):
        if number != current:
            # A parser for each of the document's own values. Of those that nobody wants, no entry
            # is built: none has this path.
            if number >= len(nested):
                raise ValueError("it has changed while it was read")
            name, type_ = nested[number]
            path = "item" if name in names and type_ is list else "\0"
            parser = ijson.items_coro(found, path, use_float=True, map_type=JsonObject)
            current = number
        parser.send(piece)
        yield from ((name, entry) for entry in found)
        found.clear()


def _nested_values(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yields the lists and objects directly within a document, in pieces: (number, bytes)."""
    number = -1
    for chunk in nested_chunks(stream, _PARSED_BYTES):
        data, start = chunk.bounded(MAX_DEPTH + _LEVELS_ABOVE), 0
        before = np.concatenate(([chunk.outer], chunk.depths))[:-1]
        edges = before + chunk.depths == 3  # from within the document into a value, or back
        for position, depth in zip(chunk.positions[edges], chunk.depths[edges], strict=True):
            if depth == 2:
                number, start = number + 1, position
            else:
                yield number, data[start : position + 1]
        if chunk.inner >= 2:
            yield number, data[start:]


def _nested_in(value: Any) -> list[Any]:
    """Returns the lists and objects directly within a value."""
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value
    return [item for item in items if isinstance(item, _NESTED)]


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
        raise ValueError(f"the name {repeated[:80]!r} stands twice")
    return values
