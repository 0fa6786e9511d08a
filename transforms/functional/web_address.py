"""Web addresses: parsed once, so that what is checked is what is fetched; which are public."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from urllib3.util import parse_url

MAX_CHARACTERS = 8192
"""Of an address; servers take about as many."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BEFORE_PATH = re.compile(r"[A-Za-z]+://[^/?#]*")
_PORTS = {"http": 80, "https": 443}


class WebAddress(NamedTuple):
    """Where a request goes, and what it asks for.

    Attributes:
        scheme: "http" or "https".
        host: in lower case, its international names encoded.
        port: the scheme's own if none is given.
        path: as it is sent, without `.` and `..`; other characters than a path's are encoded.
        query: as it is sent, or None.
        login: user and password as they are written, or None.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str | None = None
    login: str | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who is asked."""
        return self.scheme, self.host, self.port

    @property
    def target(self) -> str:
        """What is asked for."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    def __str__(self) -> str:
        """Returns the address without its login."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.target}"


@lru_cache(256)  # a root is parsed for each row
def parse_web_address(text: str) -> WebAddress:
    """Returns what a text is as a web address.

    >>> str(parse_web_address("HTTPS://me:pw@Host:443/a/../b c.jpg?d#e"))
    'https://host/b%20c.jpg?d'

    Raises:
        ValueError: if it is none, or programs read it in different ways.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
    if has_control_characters(text):
        raise ValueError("it has control characters")
    before_path = _BEFORE_PATH.match(text)
    if before_path and "\\" in before_path[0]:
        raise ValueError("it has a backslash before its path")
    try:
        url = parse_url(text)
    except ValueError as error:  # its own says the whole address again, with its login
        raise ValueError("its host or its port is not valid") from error
    if url.scheme not in _PORTS or not url.host:
        raise ValueError("it has no host")
    port = url.port or _PORTS[url.scheme]
    return WebAddress(url.scheme, url.host, port, url.path or "/", url.query, url.auth)


def has_control_characters(text: str) -> bool:
    r"""Returns whether a text has characters that some programs drop, or stop at.

    >>> has_control_characters("a b"), has_control_characters("a\tb")
    (False, True)
    """
    return _CONTROL.search(text) is not None


# IANA's special-purpose registries, written out: Pythons differ on them.
_SPECIAL_IPV4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's own services for its virtual machines; looks public
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocols' own, and Oracle's metadata
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
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that is public today; site-local, discard-only and SRv6 addresses are outside of it."""

_SPECIAL_IPV6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4, given up for good by RFC 7526
        "3fff::/20",  # documentation, RFC 9637
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Returns whether an address belongs to the public internet, and not to someone's inside.

    Loopback, private, link-local and shared addresses do not, and with them the metadata services
    of the clouds; nor do IPv6 addresses that stand for such.

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
    """Returns the IPv4 address that an IPv6 address stands for: mapped, or by NAT64."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped
