"""How much work an image may be in the run's own process: bytes and parts count, not only pixels.

What is beyond these limits is for a process of its own, which has a deadline and a limit of memory.
"""

from __future__ import annotations

MAX_FILE_BYTES = 2**26
"""Of a whole file: each of its bytes is looked at."""

MAX_HEADER_BYTES = 2**22
"""Of all metadata before a JPEG's pixels: parsers in Python go through it entry by entry."""

MAX_SEGMENTS = 1024
"""Of a JPEG: markers with what belongs to them."""

MAX_CHUNKS = 2**14
"""Of a PNG, most of which hold image data: some encoders write 8 KiB a chunk."""

MAX_OTHER_CHUNKS = 128
"""Of a PNG's chunks that hold no image data: each may inflate to 1 MiB in Pillow."""

MAX_TAGS = 512
"""Of a directory within a JPEG's metadata: each tag may refer to all of the metadata again."""

MAX_WORK = 2**27
"""Of decoding, in pixels of a scan, or in two bytes of memory: about a second."""


class TooMuchEffortError(Exception):
    """An image is too much work for this process."""
