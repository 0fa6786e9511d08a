"""Reads all coded data of a JPEG, and as little else as that takes.

Pillow's decoder is driven directly: its plugin would parse the header again, in Python, for what
`transforms.functional.pictures.jpeg` has found out already.
"""

from __future__ import annotations

from PIL import Image, ImageFile

from schemas.rejects import Reason, RecordError

_SCALES = (8, 4, 2, 1)


def read_coded_data(data: bytes, width: int, height: int) -> None:
    """Decodes a JPEG at an eighth of its size, without its colours.

    That reads all entropy-coded data and skips most of the inverse transform: a third less work,
    with the full decode's verdict. Only for SOF0, 1 and 2: on the lossless process Pillow 12.3's
    scaled decode corrupts the heap.

    Args:
        data: the whole file.
        width: in pixels, as its frame header says.
        height: in pixels.

    Raises:
        RecordError: truncated or corrupt.
    """
    scale = next(scale for scale in _SCALES if min(width, height) >= scale)
    picture = Image.new("L", (-(-width // scale), -(-height // scale)), None)
    decoder = Image._getdecoder("L", "jpeg", ("L", ""), (scale, 0))
    try:
        decoder.setimage(picture.im, (0, 0, *picture.size))
        consumed, code = decoder.decode(data)
    finally:
        decoder.cleanup()
    if consumed >= 0:  # it asks for more
        raise RecordError(Reason.TRUNCATED, f"{len(data) - consumed} bytes make no further row")
    if code < 0:
        raise RecordError(Reason.CORRUPT, str(ImageFile._get_oserror(code, encoder=False)))
