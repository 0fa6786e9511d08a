"""What a file is, from its first bytes: names lie."""

from __future__ import annotations

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"BM", "bmp"),
    (0, b"II*\0", "tiff"),
    (0, b"MM\0*", "tiff"),
    (0, b"II+\0", "tiff"),
    (0, b"MM\0+", "tiff"),
    (8, b"WEBP", "webp"),
    (4, b"ftypavif", "avif"),
    (4, b"ftypavis", "avif"),
    (4, b"ftypheic", "heic"),
    (4, b"ftypheix", "heic"),
    (4, b"ftypmif1", "heic"),
    (0, b"\0\0\0\x0cjP  ", "jpeg2000"),
    (0, b"\xff\x4f\xff\x51", "jpeg2000"),
    (0, b"\0\0\1\0", "ico"),
    (0, b"8BPS", "psd"),
    (0, b"%!PS", "eps"),
    (0, b"\xc5\xd0\xd3\xc6", "eps"),
    (0, b"%PDF", "pdf"),
)
_PNM = tuple(b"P%d%c" % (i, c) for i in range(1, 8) for c in b" \t\r\n")

HEAD_BYTES = 16


def sniff(head: bytes) -> str | None:
    """Returns the format that a file's first bytes announce, or None if they announce no image.

    >>> sniff(b"GIF89a")
    'gif'
    """
    if head.startswith(_PNM):
        return "pnm"
    return next((f for at, magic, f in _SIGNATURES if head.startswith(magic, at)), None)
