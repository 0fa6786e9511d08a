"""Which addresses lead out of `--image_root`, as their text tells.

Where a path on this machine leads, links included, only the machine can tell: see
`transforms.fence`.
"""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from schemas.layout import is_url, is_web
from schemas.masking import masked_url
from schemas.rejects import Reason, RecordError

REMEDY = "put the file there, or say --allow_outside_root"


def check_address(uri: str, root: str) -> None:
    """Refuses an address that is not below a root; two paths on this machine pass here.

    `.` and `..` are taken as file systems take them, on the web also where they are written with
    %2e. Neither stores nor servers are asked.

    Raises:
        RecordError: outside_root.
    """
    if not (is_url(uri) or is_url(root)):
        return
    place = normalized(uri)
    if is_url(uri) and is_below(place, normalized(root)):
        return
    raise outside(masked_url(place), masked_url(root))


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
    >>> normalized("HTTPS://Host/photos/%2e%2e/secret?size=a/../b")
    'https://host/secret'
    """
    if not is_url(address):
        return posixpath.normpath(address)
    scheme, _, rest = address.partition("://")
    if is_web(address):
        rest = rest.partition("#")[0].partition("?")[0].replace("\\", "/")
    host, _, path = rest.partition("/")
    if is_web(address):
        host, path = host.lower(), unquote(path).replace("\\", "/")
    path = posixpath.normpath("/" + path.lstrip("/"))
    return f"{scheme.lower()}://{host}{path.rstrip('/')}"
