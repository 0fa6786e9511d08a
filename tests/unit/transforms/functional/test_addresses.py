"""Tests of public addresses, in every notation."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.functional.addresses import is_public

INSIDE = (
    "0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.8.8.8 169.254.169.254 172.16.0.1 "
    "172.31.255.255 192.0.0.192 192.168.1.1 198.18.0.1 224.0.0.1 255.255.255.255 168.63.129.16 "
    ":: ::1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 64:ff9b::10.0.0.1 2002:7f00:1:: "
    "2002:a9fe:a9fe:: 2002:100:: 2001:0:808:808:: fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 "
    "ff02::1 2001:db8::1 fec0::1 feff::1 3fff::1 3fff:fff:ffff::1 5f00::1 100::1 100:0:0:1::1 "
    "64:ff9b:1::808:808 ::8.8.8.8 ::ffff:0:8.8.8.8 4000::1 192.0.0.9 192.0.2.1 192.88.99.1 "
    "198.51.100.1 203.0.113.1 240.0.0.1 100.127.255.255 198.19.255.255 2001:1::1 2001:1ff::1"
)
OUTSIDE = (
    "1.1.1.1 8.8.8.8 52.216.0.1 172.32.0.1 192.167.0.1 2606:4700::1111 ::ffff:8.8.8.8 "
    "64:ff9b::808:808 100.63.255.255 100.128.0.1 198.20.0.1 2001:200::1 "
    "2001:4860:4860::8888 3fff:1000::1"
)


@pytest.mark.parametrize("address", INSIDE.split())
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OUTSIDE.split())
def test_addresses_outside_are_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_mapped_addresses_are_public_if_their_ipv4_address_is(
    address: ipaddress.IPv4Address,
) -> None:
    assert is_public(f"::ffff:{address}") == is_public(str(address))
    assert is_public(f"64:ff9b::{address}") == is_public(str(address))


@given(st.ip_addresses())
def test_private_networks_of_the_registry_are_not_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        mapped = getattr(address, "ipv4_mapped", None)
        assert not is_public(str(address)) or mapped is not None
