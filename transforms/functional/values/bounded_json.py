"""JSON as sources hold it: parsed strictly, and never nested deeper than values can be handled.

Python's own parser accepts values of almost a thousand levels; what handles them afterwards
(pickling, encoding, printing) recurses deeper than Python allows. So nesting is bounded here, once.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

MAX_DEPTH = 64
"""How many lists and objects can lie within each other."""

_TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} lists and objects within each other"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _ZERO, _SPACE = b'"0 '
_OPEN, _CLOSE, _BRACKET_BIT = ord("{"), ord("}"), ord("{") ^ ord("[")
_CHUNK_BYTES = 2**20
_MAX_OUTLINE = 16 * 2**20


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


class BoundedNesting:
    """A JSON document whose nesting is cut off while it is read.

    What lies deeper is replaced by a 0, which leaves the document well-formed. A streaming parser
    holds the path to every level: for a document of brackets, memory is the square of its size.
    """

    def __init__(self, stream: BinaryIO, levels: int) -> None:
        self._stream = stream
        self._levels = levels
        self._nesting = _Nesting()

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; at the end none."""
        data = self._stream.read(size)
        before, after = self._nesting.around(data)
        if not len(after) or max(after.max(), before[0]) <= self._levels:
            return data
        bounded = np.frombuffer(data, np.uint8).copy()
        bounded[(before > self._levels) | (after > self._levels)] = _SPACE
        bounded[(before == self._levels) & (after > self._levels)] = _ZERO
        return bytes(bounded)


def outline_of(stream: BinaryIO) -> Any:
    """Returns a JSON document from which all within its own lists and objects is left out.

    Raises:
        ValueError: if it is not JSON, or names something twice; as far as its outline shows.
    """
    nesting, kept, size = _Nesting(), list[bytes](), 0
    while data := stream.read(_CHUNK_BYTES):
        before, after = nesting.around(data)
        kept.append(np.frombuffer(data, np.uint8)[np.minimum(before, after) <= 1].tobytes())
        size += len(kept[-1])
        if size > _MAX_OUTLINE:
            raise ValueError(f"its own texts and numbers have more than {_MAX_OUTLINE:,} bytes")
    return parse_json(b"".join(kept).decode("utf-8-sig"))


class _Nesting:
    """How deep each byte of a JSON document lies, from one chunk of it to the next."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def around(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many brackets are open before and after each byte."""
        codes = np.frombuffer(self._without_escapes(data), np.uint8)
        quotes = codes == _QUOTE
        in_text = (np.cumsum(quotes) + self._in_text) % 2 == 1
        braces = np.where(in_text, 0, codes | _BRACKET_BIT)
        steps = (braces == _OPEN).astype(np.int64) - (braces == _CLOSE)
        after = self._depth + np.cumsum(steps)
        if len(codes):
            self._depth, self._in_text = int(after[-1]), bool(in_text[-1])
        return after - steps, after

    def _without_escapes(self, data: bytes) -> bytes:
        if self._escaped and data:
            data = b" " + data[1:]
            self._escaped = False
        if b"\\" not in data:
            return data
        data = _ESCAPE.sub(b"  ", data)
        self._escaped = data.endswith(b"\\")
        return data


def _nested_in(value: Any) -> Iterator[Any]:
    """Returns the lists and objects directly within a value."""
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value
    return (item for item in items if isinstance(item, list | dict))


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
