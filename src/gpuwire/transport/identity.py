"""Who a server is: its key, its certificate and the fingerprint that tickets carry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key and the certificate that goes with it."""

    key: CertificateIssuerPrivateKeyTypes
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @classmethod
    def create(cls) -> Identity:
        """A new key (P-256) with a self-signed certificate, kept nowhere."""
        raise NotImplementedError

    @classmethod
    def load_or_create(cls, directory: Path) -> Identity:
        """The identity stored in `directory`, made at the first call (directory 0700, key 0600)."""
        raise NotImplementedError

    @classmethod
    def load(cls, certificate_file: Path, key_file: Path) -> Identity:
        """An identity from PEM files, such as a certificate that an authority signed."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the SubjectPublicKeyInfo, base64url without padding: 43 characters."""
        raise NotImplementedError
