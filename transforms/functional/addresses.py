"""Addresses of files and images: how URLs are parsed, which hosts are public, what a root contains.

A URL is parsed once, so that the address that is checked is the address that is fetched. Local
paths need the file system, for their links: see `recordmill.transforms.storage.local_files`.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import unquote

from urllib3.util import parse_url

from recordmill.schemas.layout import is_url, is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.records import MAX_CHARACTERS
from recordmill.schemas.rejects import Reason, RecordError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BEFORE_PATH = re.compile(r"[A-Za-z]+://[^/?#]*")
_PORTS = {"http": 80, "https": 443}

REMEDY = "Put the file there, or pass --allow_outside_root."

_SEPARATORS = re.compile(r"[/\\]")

# Segments that some servers treat as `.` or `..`, as they drop parameters, blanks and controls.
_DOTS = re.compile(r"[\x00-\x20]*(?:\.[\x00-\x20]*){1,2}(?:;.*)?", re.DOTALL)

# Non-standard encodings of dots and separators that some servers decode.
_LAX_CODES = {
    re.compile(r"%(?:c0%ae|e0%80%ae|f0%80%80%ae|u002e|ef%bc%8e|uff0e)", re.IGNORECASE): ".",
    re.compile(r"%(?:c0%af|e0%80%af|f0%80%80%af|u002f|ef%bc%8f|uff0f)", re.IGNORECASE): "/",
    re.compile(r"%(?:c1%9c|e0%81%9c|f0%80%81%9c|u005c|ef%bc%bc|uff3c)", re.IGNORECASE): "/",
}

_MOST_DECODINGS = 4
_SHOWN_CHARACTERS = 200


class WebAddress(NamedTuple):
    """A parsed HTTP(S) URL."""

    scheme: str  # "http" or "https"
    host: str  # the host in lower case, with international names encoded
    port: int  # the port; the default of the scheme if the URL has none
    path: str  # the path as it is sent, without `.` and `..`, and with invalid characters encoded
    query: str | None = None
    login: str | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def target(self) -> str:
        """Path and query, as the request line has them."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    def __str__(self) -> str:
        """Returns the address without its login."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.target}"


@lru_cache(256)  # a root is parsed for each row
def parse_web_address(text: str) -> WebAddress:
    """Parses a web address; raises ValueError if it is invalid, or programs would differ on it.

    >>> str(parse_web_address("HTTPS://me:pw@Host:443/a/../b c.jpg?d#e"))
    'https://host/b%20c.jpg?d'
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
    if _has_control_characters(text):
        raise ValueError("it has control characters")
    before_path = _BEFORE_PATH.match(text)
    if before_path and "\\" in before_path[0]:
        raise ValueError("it has a backslash before its path")
    try:
        url = parse_url(text)
    except ValueError as error:  # urllib3's own message quotes the address with its login
        raise ValueError("its host or its port is not valid") from error
    if url.scheme not in _PORTS or not url.host:
        raise ValueError("it has no host")
    port = url.port or _PORTS[url.scheme]
    return WebAddress(url.scheme, url.host, port, url.path or "/", url.query, url.auth)


def _has_control_characters(text: str) -> bool:
    r"""Returns whether a text has control characters, which some programs drop or stop at."""
    return _CONTROL.search(text) is not None


# IANA's special-purpose registries, listed here because Python versions differ in them.
_SPECIAL_IPV4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's services for virtual machines; looks public
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments, and Oracle's metadata service
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)

# The only public range; site-local, discard-only and SRv6 addresses are outside of it.
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_SPECIAL_IPV6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4, deprecated by RFC 7526
        "3fff::/20",  # documentation, RFC 9637
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Returns whether an IP address belongs to the public internet.

    Loopback, private, link-local and shared addresses do not, which includes the metadata services
    of clouds; nor do IPv6 addresses that embed such an address.

    >>> [is_public(a) for a in ("8.8.8.8", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1")]
    [True, False, False, False]
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = _embedded(address) or address
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    special = any(address in network for network in _SPECIAL_IPV6)
    return address in _GLOBAL_UNICAST and not special


def _embedded(address: IPv6Address) -> IPv4Address | None:
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.ipv4_mapped


def check_address(uri: str, root: str) -> None:
    """Rejects an address that is not below the image root, without any request.

    An accepted address is below the root as it is sent, and however a server may decode it. If both
    are local paths, nothing is checked here. Raises RecordError (outside_root).
    """
    if not (is_url(uri) or is_url(root)):
        return
    if is_web(uri):
        address = _parsed(uri, root)
        target, inside = _shown(address), is_web(root) and _is_in_web(address, _parsed(root, root))
    else:
        target, inside = masked_url(_normalized(uri)), is_url(uri) and _is_in_store(uri, root)
    if not inside:
        raise outside_root_error(target, masked_url(root))


def outside_root_error(target: str, root: str) -> RecordError:
    """Returns the error for a reference outside of the image root."""
    return RecordError(
        Reason.OUTSIDE_ROOT, f"leads to {target}, outside of --image_root {root}. {REMEDY}"
    )


def is_below(target: str, root: str) -> bool:
    """Returns whether a normalized path or address is below another.

    >>> is_below("/data/photos/1.jpg", "/data/photos"), is_below("/data/photos2", "/data/photos")
    (True, False)
    """
    return target.startswith(root.rstrip("/") + "/")


def _normalized(address: str) -> str:
    """Returns an address without `.`, `..` and doubled slashes; it never leads above its host.

    >>> _normalized("s3://bucket/photos/../../secret/./1.jpg")
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
        shown = masked_url(uri)[:_SHOWN_CHARACTERS]
        what = f"{shown!r}, which is not a valid web address: {error}"
        raise outside_root_error(what, masked_url(root)) from error


def _shown(address: WebAddress) -> str:
    path = posixpath.normpath(_SEPARATORS.sub("/", "/" + unquote(address.path).lstrip("/")))
    return str(address._replace(path=path.rstrip("/"), query=None))


def _is_in_web(address: WebAddress, root: WebAddress) -> bool:
    """Returns whether a URL is below another, compared by decoded path segments."""
    parts = [unquote(part) for part in address.path.split("/")]
    above = [unquote(part) for part in root.path.rstrip("/").split("/")]
    below = parts[: len(above)] == above and any(parts[len(above) :])
    return address.origin == root.origin and below and not _has_hidden_dots(address.path)


def _has_hidden_dots(path: str) -> bool:
    """Returns whether a path has an encoded `.` or `..`, or one with parameters."""
    # The parser has resolved plain `.` and `..`. Proxies and servers may each decode a path again.
    for _ in range(_MOST_DECODINGS):
        for code, character in _LAX_CODES.items():
            path = code.sub(character, path)
        if any(_DOTS.fullmatch(part) for part in _SEPARATORS.split(path)):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True  # encoded more often than any legitimate path


def _is_in_store(uri: str, root: str) -> bool:
    """Returns whether an object is below a root, both as a literal key and as a resolved path."""
    parts = uri.partition("://")[2].split("/")
    depth = 0  # below the host; for HDFS the "host" may be the first folder
    for part in parts[1:]:
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return False
    as_key = is_below(uri, root) and not _has_control_characters(uri)
    return as_key and is_below(_normalized(uri), _normalized(root))
