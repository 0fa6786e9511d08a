"""Which addresses of the network anyone may be sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_NAT64 = IPv6Network("64:ff9b::/96")
_REFUSED = tuple(
    ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's own services for its virtual machines; looks public
        "192.0.0.0/24",  # protocols' own, and Oracle's metadata; Pythons differ on it, and on:
        "192.88.99.0/24",
        "100.64.0.0/10",
        "64:ff9b:1::/48",
        "2001::/23",  # Teredo among them
        "2002::/16",  # 6to4, given up for good by RFC 7526
    )
)


def is_public(text: str) -> bool:
    """Returns whether an address belongs to the public internet, and not to someone's inside.

    Loopback, private, link-local and shared addresses do not, and with them the metadata services
    of the clouds; nor do IPv6 addresses that stand for such.

    >>> [is_public(a) for a in ("8.8.8.8", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1")]
    [True, False, False, False]
    """
    address = ip_address(text.partition("%")[0])
    inner = _embedded(address) if isinstance(address, IPv6Address) else None
    if inner is not None:
        return is_public(str(inner))
    if address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return address.is_global and not any(address in network for network in _REFUSED)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that an IPv6 address stands for: mapped, or by NAT64."""
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if address in _NAT64 or int(address) >> 32 == 0:  # the latter: IPv4-compatible, long obsolete
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
