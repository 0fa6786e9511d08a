"""Which addresses of the network anyone may be sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
