"""Which addresses lead out of `--image_root`, as their text tells.

Where a path on this machine leads, links included, only the machine can tell: see
`recordmill.transforms.storage.image_root`.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.web_address import (
    WebAddress,
    has_control_characters,
    parse_web_address,
)

REMEDY = "put the file there, or say --allow_outside_root"

_SEPARATORS = re.compile(r"[/\\]")
_DOTS = re.compile(r"[\x00-\x20]*(?:\.[\x00-\x20]*){1,2}(?:;.*)?", re.DOTALL)
"""What some server takes for `.` or `..`: they drop parameters, blanks and control characters."""

_LAX_CODES = {
    re.compile(r"%(?:c0%ae|e0%80%ae|f0%80%80%ae|u002e|ef%bc%8e|uff0e)", re.IGNORECASE): ".",
    re.compile(r"%(?:c0%af|e0%80%af|f0%80%80%af|u002f|ef%bc%8f|uff0f)", re.IGNORECASE): "/",
    re.compile(r"%(?:c1%9c|e0%81%9c|f0%80%81%9c|u005c|ef%bc%bc|uff3c)", re.IGNORECASE): "/",
}
"""Dots and separators as no standard writes them, and some server reads them all the same."""

_MOST_DECODINGS = 4
_SHOWN_CHARACTERS = 200


def check_address(uri: str, root: str) -> None:
    """Rejects an address that is not below a root; two paths on this machine pass here.

    What passes is below it as it is sent and however a server may decode it. Neither stores nor
    servers are asked.

    Raises:
        RecordError: outside_root.
    """
    if not (is_url(uri) or is_url(root)):
        return
    if is_web(uri):
        address = _parsed(uri, root)
        place, inside = _shown(address), is_web(root) and _is_in_web(address, _parsed(root, root))
    else:
        place, inside = masked_url(normalized(uri)), is_url(uri) and _is_in_store(uri, root)
    if not inside:
        raise outside(place, masked_url(root))


def outside(place: str, root: str) -> RecordError:
    """Returns the refusal of a reference, with where it leads."""
    return RecordError(
        Reason.OUTSIDE_ROOT, f"leads to {place}, outside of --image_root {root}; {REMEDY}"
    )


def is_below(place: str, root: str) -> bool:
    """Returns whether a normalized path or address is below another.

    >>> is_below("/data/photos/1.jpg", "/data/photos"), is_below("/data/photos2", "/data/photos")
    (True, False)
    """
    return place.startswith(root.rstrip("/") + "/")


def normalized(address: str) -> str:
    """Returns an address without `.`, `..` and doubled slashes; it never climbs above its host.

    >>> normalized("s3://bucket/photos/../../secret/./1.jpg")
    's3://bucket/secret/1.jpg'
    """
    if not is_url(address):
        return posixpath.normpath(address)
    scheme, _, rest = address.partition("://")
    host, _, path = rest.partition("/")
    path = posixpath.normpath("/" + path.lstrip("/"))
    return f"{scheme.lower()}://{host}{path.rstrip('/')}"


def _parsed(uri: str, root: str) -> WebAddress:
    try:
        return parse_web_address(uri)
    except ValueError as error:
        place = (
            f"{masked_url(uri)[:_SHOWN_CHARACTERS]!r}, which is not a valid web address: {error}"
        )
        raise outside(place, masked_url(root)) from error


def _shown(address: WebAddress) -> str:
    path = posixpath.normpath(_SEPARATORS.sub("/", "/" + unquote(address.path).lstrip("/")))
    return str(address._replace(path=path.rstrip("/"), query=None))


def _is_in_web(address: WebAddress, root: WebAddress) -> bool:
    """Returns whether an address is below another, part by part and as it is sent."""
    parts = [unquote(part) for part in address.path.split("/")]
    above = [unquote(part) for part in root.path.rstrip("/").split("/")]
    below = parts[: len(above)] == above and any(parts[len(above) :])
    return address.origin == root.origin and below and not _has_hidden_dots(address.path)


def _has_hidden_dots(path: str) -> bool:
    """Returns whether a path has a `.` or `..` left, as only encoded ones are, and parameters."""
    for _ in range(_MOST_DECODINGS):
        for code, character in _LAX_CODES.items():
            path = code.sub(character, path)
        if any(_DOTS.fullmatch(part) for part in _SEPARATORS.split(path)):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True  # encoded so often that it is to hide something


def _is_in_store(uri: str, root: str) -> bool:
    """Returns whether an object is below a root: as a key, which has no `..`, and as a path."""
    parts = uri.partition("://")[2].split("/")
    depth = 0  # below the host, which for HDFS is the first folder, or may be
    for part in parts[1:]:
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return False
    as_key = is_below(uri, root) and not has_control_characters(uri)
    return as_key and is_below(normalized(uri), normalized(root))
