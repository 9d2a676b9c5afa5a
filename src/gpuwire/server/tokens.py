"""The token store: who may open sessions, kept as hashes.

A token is 256 random bits, so one round of SHA-256 is enough to store it: there is nothing to
guess. The file is `tokens.json` in the server's state directory, mode 0600. A running server sees
what `gpuwire token` changes there at the next session.

One secret is kept in the clear: that of the token named `default`, in `default-token`, mode 0600,
beside the server's private key, which is worth more. From it `serve` prints a ticket that works
at every start, not only at the first. Whoever wants none revokes `default`: the file goes, and
later starts make no new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwire.errors import ArgumentError, ConfigError, TokenRejected
from gpuwire.transport import make_token

DEFAULT_NAME = "default"
_FILE = "tokens.json"
_LOCK = "tokens.lock"
_DEFAULT_FILE = "default-token"


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What a token allows. Sizes in bytes; 0 is no limit of its own; `devices` None is all."""

    max_memory_bytes: int = 0
    """Device memory of one session."""
    max_upload_bytes: int = 0
    """One tensor's upload."""
    max_sessions: int = 0
    """Sessions at once."""
    devices: tuple[int, ...] | None = None


NO_LIMITS = TokenLimits()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token without its secret. Times are in UTC."""

    name: str
    digest: str
    """SHA-256 of the secret, in hexadecimal."""
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    limits: TokenLimits = NO_LIMITS

    def is_valid(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


class TokenStore:
    """The tokens of one state directory. Any number of processes may use one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._records: tuple[TokenRecord, ...] = ()
        self._stamp: tuple[int, int] | None = None

    def check(self, secret: str, now: datetime | None = None) -> TokenRecord:
        """The record of a valid secret. `TokenRejected` with `reason` missing, wrong, expired or
        revoked. The time it takes does not depend on how much of a secret is right."""
        if not secret:
            raise TokenRejected(
                "this server wants a token; use a whole ticket, `&token=` and all",
                reason="missing",
            )
        digest = _digest(secret)
        found: TokenRecord | None = None
        for record in self.records():
            if hmac.compare_digest(record.digest, digest):
                found = record
        if found is None:
            raise TokenRejected(
                "the server does not know this token; ask its owner for a new ticket",
                reason="wrong",
            )
        if found.revoked is not None:
            raise TokenRejected("this token was revoked", reason="revoked")
        if not found.is_valid(now or datetime.now(UTC)):
            raise TokenRejected(f"this token expired at {found.expires}", reason="expired")
        return found

    def add(
        self, name: str, *, limits: TokenLimits = NO_LIMITS, expires: datetime | None = None
    ) -> str:
        """Makes a token of that name and returns its secret, which is stored nowhere.

        A revoked or expired token of the name gives way; a valid one is an `ArgumentError`.
        """
        now = datetime.now(UTC)
        secret = make_token()
        with self._changing() as records:
            if any(record.name == name and record.is_valid(now) for record in records):
                raise ArgumentError(f"there is a token named {name!r}; revoke it first")
            records[:] = [record for record in records if record.name != name]
            records.append(TokenRecord(name, _digest(secret), now, expires, None, limits))
        return secret

    def records(self) -> tuple[TokenRecord, ...]:
        """Every token, revoked and expired ones too, oldest first. `ConfigError` if the file cannot
        be read."""
        path = self.directory / _FILE
        try:
            status = path.stat()
        except FileNotFoundError:
            return ()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._records = _read(path)
            self._stamp = stamp
        return self._records

    def revoke(self, name: str) -> None:
        """Ends a token; `KeyError` if there is no valid or expired one of that name."""
        with self._changing() as records:
            for index, record in enumerate(records):
                if record.name == name and record.revoked is None:
                    records[index] = replace(record, revoked=datetime.now(UTC))
                    break
            else:
                raise KeyError(name)
        if name == DEFAULT_NAME:
            (self.directory / _DEFAULT_FILE).unlink(missing_ok=True)

    def default_secret(self) -> str | None:
        """The secret of the token named `default`, made at the first call; None if that one was
        revoked or has expired."""
        path = self.directory / _DEFAULT_FILE
        named = [record for record in self.records() if record.name == DEFAULT_NAME]
        if not named:
            secret = self.add(DEFAULT_NAME)
            write_private(path, secret)
            return secret
        if not named[0].is_valid(datetime.now(UTC)):
            return None
        try:
            return path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[TokenRecord]]:
        """The records, to be changed in place; stored at the end, by one process at a time."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self.directory / _LOCK):
            # Read anew: within one tick of the file system's clock two versions can look alike.
            self._stamp = None
            records = list(self.records())
            yield records
            write_private(self.directory / _FILE, _format(records))
            self._stamp = None


def write_private(path: Path, text: str) -> None:
    """Puts a file in place whole or not at all, readable by its owner only."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _format(records: list[TokenRecord]) -> str:
    entries = [asdict(record) for record in records]
    return json.dumps({"version": 1, "tokens": entries}, indent=1, default=datetime.isoformat)


def _read(path: Path) -> tuple[TokenRecord, ...]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return tuple(_record(entry) for entry in content["tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the token store {path} cannot be read: {error}", file=str(path)
        ) from error


def _record(entry: dict[str, Any]) -> TokenRecord:
    limits = entry["limits"]
    devices = limits["devices"]
    return TokenRecord(
        name=str(entry["name"]),
        digest=str(entry["digest"]),
        created=datetime.fromisoformat(entry["created"]),
        expires=_moment(entry["expires"]),
        revoked=_moment(entry["revoked"]),
        limits=TokenLimits(
            max_memory_bytes=int(limits["max_memory_bytes"]),
            max_upload_bytes=int(limits["max_upload_bytes"]),
            max_sessions=int(limits["max_sessions"]),
            devices=None if devices is None else tuple(map(int, devices)),
        ),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
