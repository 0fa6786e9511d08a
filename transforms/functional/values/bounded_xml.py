"""Parses XML of untrusted files: without document types, and with limits of nesting and of size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

# What `parse_xml` and `children_of` raise for files that are not valid.
DAMAGED_XML = (expat.ExpatError, ValueError, LookupError)

# The maximum nesting of elements, as of JSON.
_MAX_DEPTH = 64
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
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"nested too deeply: more than {_MAX_DEPTH} levels of elements")
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
