"""Identities: made once, kept safe, recognised again."""

from __future__ import annotations

import base64
import hashlib
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gpuwire.errors import ConfigError
from gpuwire.transport import Identity
from gpuwire.transport.identity import IDENTITY_FILE


def test_the_fingerprint_is_the_hash_of_the_public_key_info() -> None:
    identity = Identity.create()
    info = identity.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    expected = base64.urlsafe_b64encode(hashlib.sha256(info).digest()).decode().rstrip("=")
    assert identity.fingerprint == expected
    assert Identity.create().fingerprint != expected


def test_it_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "state"
    first = Identity.load_or_create(directory)
    assert Identity.load_or_create(directory).fingerprint == first.fingerprint
    assert (directory / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in directory.iterdir()] == [IDENTITY_FILE]


def test_many_at_once_end_with_one(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(Identity.load_or_create(tmp_path / "s").fingerprint)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path)
    (tmp_path / IDENTITY_FILE).chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Identity.load_or_create(tmp_path)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / IDENTITY_FILE
    path.write_text("not a key")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="no private key") as caught:
        Identity.load_or_create(tmp_path)
    assert caught.value.file == str(path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept"):
        Identity.load_or_create(tmp_path / "file" / "state")


def test_files_of_ones_own(tmp_path: Path) -> None:
    mine, other = Identity.create(), Identity.create()
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    certificate.write_bytes(mine.certificate.public_bytes(Encoding.PEM))
    key.write_bytes(mine.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert Identity.load(certificate, key).fingerprint == mine.fingerprint
    certificate.write_bytes(other.certificate.public_bytes(Encoding.PEM))
    with pytest.raises(ConfigError, match="does not belong"):
        Identity.load(certificate, key)
    with pytest.raises(ConfigError, match="cannot be read"):
        Identity.load(tmp_path / "missing.pem", key)


def test_the_repr_shows_no_key() -> None:
    identity = Identity.create()
    assert repr(identity) == f"Identity(fingerprint={identity.fingerprint!r})"
