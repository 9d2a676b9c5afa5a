"""The token store: who may open sessions, kept as hashes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What a token allows. Sizes in bytes; 0 is no limit of its own; `devices` None is all."""

    max_memory_bytes: int = 0
    max_upload_bytes: int = 0
    max_sessions: int = 0
    devices: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token without its secret."""

    name: str
    digest: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    limits: TokenLimits = TokenLimits()


class TokenStore:
    """Tokens of one state directory."""

    def __init__(self, directory: Path) -> None:
        raise NotImplementedError

    def add(
        self, name: str, *, limits: TokenLimits = TokenLimits(), expires: datetime | None = None
    ) -> str:
        """Makes a token of that name and returns its secret, which is stored nowhere."""
        raise NotImplementedError

    def records(self) -> tuple[TokenRecord, ...]:
        """Every token, revoked and expired ones too, oldest first."""
        raise NotImplementedError

    def revoke(self, name: str) -> None:
        """Ends a token; `KeyError` if there is none of that name."""
        raise NotImplementedError
