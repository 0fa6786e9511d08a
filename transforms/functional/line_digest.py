"""A digest of lines in any order: those of rejects/ come as their workers end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_BYTES = 32


def digest_of_lines(lines: Iterable[bytes]) -> str:
    r"""Returns a hex digest of some lines, which a line more, less, twice or changed changes.

    It is the sum of the lines' own digests, so that memory does not grow with them. It is no
    defence against one who can choose all lines freely; nor is a digest that can be replaced.

    Args:
        lines: each with its line break, so that one that is lacking is seen.

    >>> digest_of_lines([b"a\n", b"b\n"]) == digest_of_lines([b"b\n", b"a\n"])
    True
    >>> digest_of_lines([b"a\n"]) == digest_of_lines([b"a\n", b"a\n"])
    False
    """
    total = sum(int.from_bytes(hashlib.sha256(line).digest(), "big") for line in lines)
    return f"{total % 2 ** (8 * _BYTES):0{2 * _BYTES}x}"
