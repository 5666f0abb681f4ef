"""Parse lists of addresses and networks."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks separated by commas; ValueError names a wrong one."""
    return tuple(_network(part.strip()) for part in text.split(",") if part.strip())


def is_in_networks(address: str, known: tuple[Network, ...]) -> bool:
    """Return whether an address lies in one of these networks; a path or a name never does."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in known)


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an address nor a network such as 10.0.0.0/8"
        ) from None
