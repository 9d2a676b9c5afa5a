"""The token store: hashed, private, shared between processes."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwire.errors import ArgumentError, ConfigError, TokenRejected
from gpuwire.server.tokens import TokenLimits, TokenStore


def rejection(store: TokenStore, secret: str, now: datetime | None = None) -> str | None:
    with pytest.raises(TokenRejected) as caught:
        store.check(secret, now)
    assert not secret or secret not in str(caught.value)
    return caught.value.reason


def test_a_secret_opens_what_its_record_allows(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    limits = TokenLimits(max_memory_bytes=10, max_upload_bytes=5, max_sessions=2, devices=(0, 2))
    secret = store.add("alice", limits=limits)
    store.add("bob")
    record = TokenStore(tmp_path).check(secret)
    assert (record.name, record.limits) == ("alice", limits)


def test_no_secret_is_stored_and_the_file_is_private(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "state")
    secret = store.add("alice")
    for path in (tmp_path / "state").iterdir():
        assert secret not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_each_refusal_says_why(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    assert rejection(store, "secret") == "wrong"
    expires = datetime.now(UTC) + timedelta(days=1)
    brief, ended = store.add("brief", expires=expires), store.add("ended")
    store.revoke("ended")
    assert rejection(store, "") == "missing"
    assert rejection(store, "no such") == "wrong"
    assert rejection(store, "\ud800") == "wrong"
    assert rejection(store, ended) == "revoked"
    assert rejection(store, brief, expires) == "expired"
    assert store.check(brief).name == "brief"


def test_a_running_store_sees_what_another_process_changes(tmp_path: Path) -> None:
    running, other = TokenStore(tmp_path), TokenStore(tmp_path)
    assert running.records() == ()
    secret = other.add("late")
    assert running.check(secret).name == "late"
    other.revoke("late")
    assert rejection(running, secret) == "revoked"


def test_a_name_is_unique_while_its_token_is_valid(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    first = store.add("laptop")
    with pytest.raises(ArgumentError, match="revoke it first"):
        store.add("laptop")
    store.revoke("laptop")
    second = store.add("laptop")
    assert store.check(second).name == "laptop"
    assert rejection(store, first) == "wrong"
    assert [record.name for record in store.records()] == ["laptop"]


def test_revoking_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    with pytest.raises(KeyError):
        store.revoke("nobody")


def test_the_default_secret_lasts_until_it_is_revoked(tmp_path: Path) -> None:
    secret = TokenStore(tmp_path).default_secret()
    assert secret is not None
    assert TokenStore(tmp_path).default_secret() == secret
    assert TokenStore(tmp_path).check(secret).name == "default"
    assert stat.S_IMODE((tmp_path / "default-token").stat().st_mode) == 0o600
    TokenStore(tmp_path).revoke("default")
    assert not (tmp_path / "default-token").exists()
    assert TokenStore(tmp_path).default_secret() is None
    assert rejection(TokenStore(tmp_path), secret) == "revoked"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text('{"tokens": [{"name": 3}]}')
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        TokenStore(tmp_path).records()
