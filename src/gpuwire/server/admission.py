"""Admission: may this Hello have a session, and with what limits?"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from inspect import isawaitable

from gpuwire.config import ServerConfig
from gpuwire.errors import GpuwireError, NoSuchDevice, QuotaExceeded, TokenRejected
from gpuwire.server.tokens import DEFAULT_NAME, NO_LIMITS, TokenLimits, TokenStore


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What an authorizer judges by. All but `address` is the client's word."""

    token: str
    device: int | None
    """None asks for the list of devices only."""
    client: str
    address: str


@dataclass(frozen=True, slots=True)
class Grant:
    """An admission: in whose name, and how much."""

    name: str
    limits: TokenLimits = NO_LIMITS
    sees_all: bool = False
    """Whether its holder may watch everybody's sessions, and not only its own."""
    token: str = field(default="", repr=False)
    """The token's digest, where one was checked: a new token of an old name is another's."""

    @property
    def owner(self) -> str:
        """Whose its holder's sessions and kept uploads are: nobody else finds or resumes them."""
        return f"token {self.token}" if self.token else f"name {self.name}"


Authorizer = Callable[[AdmissionRequest], Grant | Awaitable[Grant]]
"""Replaces the token check. Raises `TokenRejected` (or another `ConnectError`) to refuse. It runs
on the front's event loop: what takes long must be awaited."""


class Admission:
    """Judges Hellos and counts sessions."""

    def __init__(
        self, store: TokenStore, config: ServerConfig, authorizer: Authorizer | None = None
    ) -> None:
        self._store = store
        self._config = config
        self._authorizer = authorizer
        self._sessions: Counter[str] = Counter()

    async def authorize(self, request: AdmissionRequest) -> Grant:
        """The grant for a request; `TokenRejected` if there is none, or the authorizer failed."""
        if self._authorizer is None:
            record = self._store.check(request.token)
            sees_all = record.name == DEFAULT_NAME
            return Grant(record.name, record.limits, sees_all, record.digest)
        try:
            grant = self._authorizer(request)
            return await grant if isawaitable(grant) else grant
        except GpuwireError:
            raise
        except Exception as error:
            raise TokenRejected(
                f"the server's authorizer failed: {type(error).__name__}", reason="wrong"
            ) from error

    def check_device(self, grant: Grant, index: int, count: int) -> None:
        """`NoSuchDevice` above the server's devices, `QuotaExceeded` outside the grant's."""
        if not 0 <= index < count:
            raise NoSuchDevice(
                f"there is no device {index}: this server has {count}, numbered from 0",
                index=index,
                count=count,
            )
        allowed = grant.limits.devices
        if allowed is not None and index not in allowed:
            raise QuotaExceeded(
                f"this token allows no device {index}, only {_listed(allowed)}", quota="devices"
            )

    @contextlib.contextmanager
    def counted(self, grant: Grant) -> Iterator[None]:
        """Counts a session while it lasts; `QuotaExceeded` if it would be one too many."""
        most = self._config.max_sessions
        if self._sessions.total() >= most:
            raise QuotaExceeded(
                f"this server has {most} sessions, as many as it takes; close one or come later",
                quota="server sessions",
                limit=most,
            )
        own = grant.limits.max_sessions
        if own and self._sessions[grant.name] >= own:
            raise QuotaExceeded(
                f"this token allows {own} sessions at once and has as many; close one first",
                quota="token sessions",
                limit=own,
            )
        self._sessions[grant.name] += 1
        try:
            yield
        finally:
            self._sessions[grant.name] -= 1
            if not self._sessions[grant.name]:
                del self._sessions[grant.name]


def tighter(first: int, second: int) -> int:
    """The tighter of two limits, of which 0 is none."""
    return min(first, second) if first and second else first or second


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none at all"
