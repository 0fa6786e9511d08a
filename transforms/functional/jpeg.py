"""What a JPEG's markers say, before anything is decoded. Source: ITU-T T.81, annex B."""

from __future__ import annotations

_STANDALONE = frozenset(range(0xD0, 0xDA)) | {0x01}
_NOT_A_FRAME = frozenset({0xC4, 0xC8, 0xCC})
_START_OF_SCAN = 0xDA

BASELINE, EXTENDED, PROGRESSIVE = 0, 1, 2
DCT_HUFFMAN = frozenset({BASELINE, EXTENDED, PROGRESSIVE})
"""The processes whose decoder is the same everywhere: discrete cosine, Huffman-coded."""


def start_of_frame(data: bytes) -> int | None:
    """Returns n of the first SOFn marker: the coding process; None if the header has none."""
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker in _STANDALONE:
            position += 2
        elif marker == _START_OF_SCAN:
            return None
        elif 0xC0 <= marker <= 0xCF and marker not in _NOT_A_FRAME:
            return marker - 0xC0
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return None
