"""Admission: may this Hello have a session?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuwire.server.tokens import TokenLimits


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What an authorizer judges by."""

    token: str
    device: int | None
    client: str
    address: str


@dataclass(frozen=True, slots=True)
class Grant:
    """An admission: in whose name, and how much."""

    name: str
    limits: TokenLimits = TokenLimits()


Authorizer = Callable[[AdmissionRequest], Grant | Awaitable[Grant]]
"""Replaces the token check; raises `TokenRejected` to refuse."""
