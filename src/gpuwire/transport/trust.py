"""How a client knows that it talks to the right server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PinnedKey:
    """The server must prove to hold the key with this fingerprint; names and dates do not count."""

    fingerprint: str
    """SHA-256 of the SubjectPublicKeyInfo, base64url without padding: 43 characters."""


@dataclass(frozen=True, slots=True)
class AuthorityFile:
    """The server's certificate must be valid for its name and signed by an authority in `path`."""

    path: Path
    """Certificates in PEM form."""
    server_name: str | None = None
    """The name that the certificate must bear, where it is not the host that is connected to."""


Trust = PinnedKey | AuthorityFile
