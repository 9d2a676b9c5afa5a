"""Who a server is: its key, its certificate and the fingerprint that tickets carry."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from gpuwire.errors import ConfigError
from gpuwire.transport.fingerprints import fingerprint_of

IDENTITY_FILE = "identity.pem"
"""Key and certificate in one file, so that one rename makes both appear at once."""

CERTIFICATE_DAYS = 36_500
"""Clients pin the key and look at no date, so nothing is won by an end."""


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key and the certificate that goes with it."""

    key: CertificateIssuerPrivateKeyTypes
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @classmethod
    def create(cls) -> Identity:
        """A new key (P-256) with a self-signed certificate, kept nowhere."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpuwire")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("gpuwire")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load_or_create(cls, directory: Path) -> Identity:
        """The identity stored in `directory`, made at the first call (directory 0700, key 0600).

        Two processes that make it at the same time end with the same one. Raises `ConfigError` when
        the directory cannot be used, the file is no identity, or others may read it.
        """
        path = directory / IDENTITY_FILE
        try:
            if not path.exists():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                cls.create()._store(path)
            _refuse_if_exposed(path)
            return cls._from_pem(path.read_bytes(), path)
        except OSError as error:
            raise ConfigError(
                f"the server's key cannot be kept in {directory}: {error.strerror}",
                file=str(path),
            ) from error

    @classmethod
    def load(cls, certificate_file: Path, key_file: Path) -> Identity:
        """An identity from PEM files, such as a certificate that an authority signed, followed by
        what lies between it and the authority. Raises `ConfigError`."""
        try:
            pem = certificate_file.read_bytes() + b"\n" + key_file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{error.filename} cannot be read: {error.strerror}", file=str(error.filename)
            ) from error
        return cls._from_pem(pem, certificate_file)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the SubjectPublicKeyInfo, base64url without padding: 43 characters."""
        return fingerprint_of(self.certificate.public_key())

    def __repr__(self) -> str:
        return f"Identity(fingerprint={self.fingerprint!r})"

    def _store(self, path: Path) -> None:
        pem = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem += self.certificate.public_bytes(Encoding.PEM)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(descriptor)
            # A link, unlike a rename, leaves what another process has put there meanwhile.
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def _from_pem(cls, pem: bytes, path: Path) -> Identity:
        try:
            key = load_pem_private_key(pem, password=None)
            certificates = x509.load_pem_x509_certificates(pem)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{path} holds no private key and certificate in PEM form", file=str(path)
            ) from error
        if certificates[0].public_key() != key.public_key():
            raise ConfigError(
                f"the certificate in {path} does not belong to its private key", file=str(path)
            )
        return cls(key, certificates[0], tuple(certificates[1:]))  # type: ignore[arg-type]


def _refuse_if_exposed(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(
            f"others can read the server's key in {path} (mode {mode:04o}): "
            f"run chmod 600 {path}, or delete it to get a new key",
            file=str(path),
        )
