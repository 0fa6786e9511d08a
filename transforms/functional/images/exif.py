"""The few words of an EXIF block that matter, found in time that its length bounds.

Pillow's parser copies what a tag refers to before anybody asks for it: some thousand tags that all
refer to the same megabyte take gigabytes. Source: CIPA DC-008, TIFF 6.0.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_PREFIX = re.compile(rb"(?:Exif\0\0)*")
_ORDERS = {b"II": "<", b"MM": ">"}
_MAGICS = (b"*\0", b"\0*")
_ORIENTATION = 0x112
_INTEGERS = {3: "H", 4: "L", 8: "h", 9: "l", 13: "L", 16: "Q"}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_ENTRY = 12
UPRIGHT = 1


class _Tag(NamedTuple):
    """A tag of a directory.

    Attributes:
        name: its number.
        kind: of its values.
        number: of its values.
        at: where they begin.
    """

    name: int
    kind: int
    number: int
    at: int


def orientation_of(block: bytes | None) -> int:
    """Returns the orientation that an EXIF block states, 1 to 8; 1 if it states none, or nonsense.

    Args:
        block: the block, with or without `Exif` before it; None if the file has none.
    """
    if block is None:
        return UPRIGHT
    found, tiff = UPRIGHT, _tiff_of(block)
    for tag in _tags(tiff):
        if tag.name == _ORIENTATION:
            kind = _INTEGERS.get(tag.kind)
            found = struct.unpack_from(_order_of(tiff) + kind, tiff, tag.at)[0] if kind else UPRIGHT
    return found if 1 <= found <= 8 else UPRIGHT


def number_of_tags(block: bytes) -> int:
    """Returns how many tags the first directory of a TIFF structure, such as EXIF, has."""
    return sum(1 for _ in _tags(_tiff_of(block)))


def _tiff_of(block: bytes) -> memoryview:
    match = _PREFIX.match(block)
    return memoryview(block)[match.end() if match else 0 :]


def _order_of(tiff: memoryview) -> str:
    return _ORDERS[bytes(tiff[:2])]


def _tags(tiff: memoryview) -> Iterator[_Tag]:
    """Yields the tags of the first directory up to one whose values are beyond the block's end."""
    if bytes(tiff[:2]) not in _ORDERS or bytes(tiff[2:4]) not in _MAGICS or len(tiff) < 8:
        return
    order = _order_of(tiff)
    (start,) = struct.unpack_from(f"{order}L", tiff, 4)
    if start + 2 > len(tiff):
        return
    (number,) = struct.unpack_from(f"{order}H", tiff, start)
    whole = min(number, (len(tiff) - start - 2) // _ENTRY)
    for entry in range(start + 2, start + 2 + whole * _ENTRY, _ENTRY):
        name, kind, values = struct.unpack_from(f"{order}HHL", tiff, entry)
        size, at = _SIZES.get(kind, 0) * values, entry + 8
        if size > 4:
            (at,) = struct.unpack_from(f"{order}L", tiff, at)
        if at + size > len(tiff):
            return
        if size:
            yield _Tag(name, kind, values, at)
