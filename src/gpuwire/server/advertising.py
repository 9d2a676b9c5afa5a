"""The address that a ticket carries."""

from __future__ import annotations

import contextlib
import ipaddress
import socket


def advertised_host(advertise: str | None, listening_on: str) -> str:
    """`advertise` if given; the address listened on if that is one; else the address from which
    this machine would talk to others, or its name where it has no way out."""
    if advertise:
        return advertise
    with contextlib.suppress(ValueError):
        if not ipaddress.ip_address(listening_on).is_unspecified:
            return listening_on
        return _outward_address() or socket.gethostname()
    return listening_on


def _outward_address() -> str | None:
    """The local address of a route to the outside. Connecting a datagram socket asks the routing
    table and sends nothing; the addresses are those set aside for documentation (RFC 5737, 3849).
    """
    probes = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
    for family, target in probes:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    return None
