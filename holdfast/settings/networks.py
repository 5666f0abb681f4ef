"""Lists of addresses and networks, as people write them."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks separated by commas; raises ValueError that names a wrong one."""
    return tuple(_network(part.strip()) for part in text.split(",") if part.strip())


def is_in_networks(address: str, known: tuple[Network, ...]) -> bool:
    """Whether the address lies in one of these networks. A path or a name lies in none."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in known)


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an address nor a network such as 10.0.0.0/8"
        ) from None
