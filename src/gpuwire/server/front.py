"""The server: a listener, its device hosts, and the sessions between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwire.config import Config, state_directory
from gpuwire.errors import (
    GpuwireError,
    NoAdapter,
    NoSuchDevice,
    ServerStartError,
    ServerStopped,
)
from gpuwire.server.admission import Admission, AdmissionRequest, Authorizer
from gpuwire.server.advertising import advertised_host
from gpuwire.server.reception import Reception, server_name
from gpuwire.server.roster import Roster
from gpuwire.server.supervision import ServedDevice
from gpuwire.server.tokens import DEFAULT_NAME, TokenStore
from gpuwire.server.upload_cache import UploadCache
from gpuwire.server.watching import Sight, Watching, sight_of
from gpuwire.telemetry.log_tail import LogTail
from gpuwire.telemetry.logs import open_logger
from gpuwire.telemetry.tracing import open_tracer
from gpuwire.transport import Identity, Listener, Ticket, TransportOptions, listen

if TYPE_CHECKING:
    from gpuwire.telemetry.otel import Tracer

FIRST_ADAPTERS = 4
"""With so many that do not work, it is not the adapters."""


class Server:
    """One server. Arguments that are None are taken from `config.server`.

    It lives in the event loop that `start` runs in, and is started once.
    """

    def __init__(
        self,
        config: Config,
        *,
        host: str | None = None,
        port: int | None = None,
        devices: Sequence[int] | None = None,
        state_dir: Path | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`devices` are numbers from `gpuwire devices`; empty is all. Clients see them numbered
        anew from 0, in this order. `authorizer` replaces the token check."""
        server = config.server
        self.config = config
        self._host = server.host if host is None else host
        self._wanted_port = server.port if port is None else port
        self._adapters = tuple(server.devices if devices is None else devices)
        self.state_dir = state_dir or server.state_dir or state_directory()
        """Where the key and the tokens are."""
        log = LogTail()
        self._logger = open_logger(server.logger, "server").also_to(log)
        self._store = TokenStore(self.state_dir)
        self._has_authorizer = authorizer is not None
        self._admission = Admission(self._store, server, authorizer)
        self._devices: list[ServedDevice] = []
        """Those that clients see, by number."""
        self._started: list[ServedDevice] = []
        """Those and the ones that did not work, to be stopped."""
        self._upload_cache = UploadCache(
            server.upload_cache_memory_bytes,
            server.upload_cache_dir,
            server.upload_cache_disk_bytes,
            self._logger,
        )
        self._roster = Roster(self._upload_cache)
        self.watching = Watching(self._devices, self._roster, log, server_name())
        """What this server tells whoever watches it."""
        self._reception: Reception | None = None
        self._tracer: Tracer | None = None
        self._listener: Listener | None = None
        self._ticket: Ticket | None = None
        self._stopped = False

    @property
    def port(self) -> int:
        """The UDP port it listens on."""
        assert self._listener is not None, "the server has not started"
        return self._listener.port

    @property
    def ticket(self) -> str:
        """The ticket that opens sessions here. It carries the token named `default`, or none where
        that was revoked or an authorizer judges."""
        assert self._ticket is not None, "the server has not started"
        return self._ticket.format()

    async def sight(self, token: str, address: str) -> Sight:
        """What the holder of a token may watch; `address` is where it asks from. Raises as a
        session would be refused, `TokenRejected` above all."""
        request = AdmissionRequest(token, None, "a viewer", address)
        return sight_of(await self._admission.authorize(request))

    async def start(self) -> None:
        """Listens and starts the device hosts; returns when sessions can be opened. Clients that
        come before wait.

        Raises `ServerStartError` (the address is taken), `NoAdapter`, `NoSuchDevice`, `DeviceLost`
        (a device host died at its start), `ConfigError` (the state directory). Nothing is left
        running then.
        """
        identity, secret = self._open_state()
        await self._upload_cache.open()
        self._tracer = open_tracer(
            self.config.server.tracing, "gpuwire-server", self._logger, key="server.tracing"
        )
        try:
            # The port first: that it is taken is known at once, devices take a second or more.
            reception = await self._listen(identity)
            await self._start_devices()
        except BaseException:
            await self.stop()
            raise
        reception.open()
        self._ticket = Ticket(
            advertised_host(self.config.server.advertise, self._host),
            self.port,
            identity.fingerprint,
            secret or "",
        )
        if secret is None and not self._has_authorizer:
            self._logger.basic(
                f"the token {DEFAULT_NAME!r} is revoked or expired, so the ticket carries none; "
                "`gpuwire token add` makes others"
            )
        self._logger.basic(f"listening on {self._host}:{self.port}, {len(self._devices)} devices")

    async def stop(self) -> None:
        """Tells every session, ends the device hosts, frees the port; the second time, nothing."""
        if self._stopped:
            return
        self._stopped = True
        self.watching.close()
        if self._reception is not None:
            await self._reception.close(ServerStopped("the server was stopped"))
        if self._listener is not None:
            await self._listener.close()
        await asyncio.gather(*(device.stop() for device in self._started))
        await self._upload_cache.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        self._logger.basic("stopped")

    def _open_state(self) -> tuple[Identity, str | None]:
        """The server's key, and the secret of the token that its ticket carries."""
        try:
            identity = Identity.load_or_create(self.state_dir)
            return identity, None if self._has_authorizer else self._store.default_secret()
        except GpuwireError:
            raise
        except OSError as error:
            raise ServerStartError(
                f"the state directory {self.state_dir} cannot be used: {error}", reason=str(error)
            ) from error

    async def _start_devices(self) -> None:
        """Those asked for, all of which must start; or all there are, of which one must."""
        if self._adapters:
            self._devices.extend(map(self._device, range(len(self._adapters)), self._adapters))
            await asyncio.gather(*(device.start() for device in self._devices))
            return
        adapter, count = await self._start_first()
        others = [self._device(0, other) for other in range(adapter + 1, count)]
        outcomes = await asyncio.gather(*map(self._try_to_start, others))
        for device, error in zip(others, outcomes, strict=True):
            if error is None:
                device.index = len(self._devices)
                self._devices.append(device)

    async def _start_first(self) -> tuple[int, int]:
        """Starts the best adapter that works, whose host says how many there are. Returns both."""
        first_error: GpuwireError | None = None
        for adapter in range(FIRST_ADAPTERS):
            device = self._device(0, adapter)
            try:
                count = await device.start()
            except (NoAdapter, NoSuchDevice) as error:
                raise first_error or error from None
            except ServerStartError:
                raise
            except GpuwireError as error:
                self._logger.basic(f"adapter {adapter} is left out: {error}")
                first_error = first_error or error
            else:
                self._devices.append(device)
                return adapter, count
        assert first_error is not None
        raise first_error

    async def _try_to_start(self, device: ServedDevice) -> GpuwireError | None:
        try:
            await device.start()
        except GpuwireError as error:
            self._logger.basic(f"an adapter is left out: {error}")
            return error
        return None

    def _device(self, index: int, adapter: int) -> ServedDevice:
        device = ServedDevice(index, adapter, self.config, self._logger)
        self._started.append(device)
        return device

    async def _listen(self, identity: Identity) -> Reception:
        remote = self.config.remote
        reception = Reception(
            self.config,
            self._admission,
            self._devices,
            self._logger,
            self._roster,
            self.watching,
            self._upload_cache,
            self._tracer,
        )
        self._reception = reception
        options = TransportOptions(
            engine=remote.quic_engine,
            segmentation_offload=remote.segmentation_offload,
            datagram_bytes=remote.datagram_bytes,
            idle_timeout_seconds=remote.idle_timeout_seconds,
            logger=self._logger,
        )
        handler = reception.receive
        self._listener = await listen(self._host, self._wanted_port, identity, handler, options)
        return reception
