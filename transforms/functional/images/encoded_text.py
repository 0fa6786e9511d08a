"""Decodes images that are text in a table: data URIs, and base64.

RFC 2397 defines data URIs: `data:image/png;base64,iVBORw0K…`. Base64 may have the characters of
URLs, line breaks, and no padding, as tools write it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.sniffing import HEAD_BYTES, is_image
from recordmill.transforms.functional.values.typed import short_repr

_DATA = re.compile(r"data:[^,]{0,200},", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]+=*")
# Paths are shorter, and no image is.
_MIN_CHARACTERS = 48
_HEAD_CHARACTERS = 4 * HEAD_BYTES // 3


def text_of(value: Any) -> str:
    """Returns the text of an image in a column, or in the `bytes` of an object; "" if none is."""
    if isinstance(value, dict):
        value = value.get("bytes")
    return value if isinstance(value, str) else ""


def is_encoded(text: str) -> bool:
    """Returns whether a text is a data URI, or base64 that begins with the signature of an image.

    >>> is_encoded("data:image/png;base64,"), is_encoded("iVBORw0KGgo.png")
    (True, False)
    """
    if _DATA.match(text):
        return True
    head = text[:_HEAD_CHARACTERS].strip()
    if len(head) < _MIN_CHARACTERS or not _BASE64.fullmatch(head):
        return False
    head = "".join(head.split())
    return is_image(_decoded(head[: len(head) // 4 * 4]))


def image_of(text: str) -> bytes:
    """Returns the bytes of a data URI, or of base64; raises RecordError if it is not valid."""
    start = _DATA.match(text)
    header, data = (start[0].lower(), text[start.end() :]) if start else (";base64,", text)
    if not header.endswith(";base64,"):
        return unquote_to_bytes(data)
    if "%" in data:
        data = unquote_to_bytes(data).decode("latin-1")
    try:
        return _decoded("".join(data.split()))
    except (binascii.Error, ValueError) as error:
        detail = f"the base64 {short_repr(text)} is not valid: {error}"
        raise RecordError(Reason.MALFORMED_ROW, detail) from error


def _decoded(text: str) -> bytes:
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
