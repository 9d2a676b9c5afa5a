"""Making a connection: trust, and every way in which it can fail."""

from __future__ import annotations

import asyncio
import datetime
import errno
import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest
from aioquic.asyncio.server import serve as serve_plain_quic
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gpuwire.errors import (
    ConnectError,
    ConnectTimeout,
    ServerNotFound,
    ServerRefused,
    ServerUnreachable,
    VersionMismatch,
    WrongFingerprint,
)
from gpuwire.transport import (
    AuthorityFile,
    Connection,
    Identity,
    PinnedKey,
    TransportOptions,
    connect,
)

ANY_KEY = PinnedKey("A" * 43)


async def echo_once(connection: Connection) -> None:
    control = await connection.accept_control()
    control.writer.write_nowait(await control.reader.read(100))
    await connection.wait_closed()


async def says_echo(connection: Connection) -> bool:
    control = await connection.open_control()
    await control.writer.write(b"hello")
    answer = await control.reader.readexactly(5)
    connection.close()
    return answer == b"hello"


def silent_socket() -> socket.socket:
    """A bound port where nobody answers."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.mark.parametrize(
    ("bound", "called"), [("127.0.0.1", "localhost"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_a_pinned_server_is_reached(
    run: Any, serve: Any, identity: Identity, bound: str, called: str
) -> None:
    async def scenario() -> None:
        async with serve(identity, echo_once, host=bound) as listener:
            trust = PinnedKey(identity.fingerprint)
            connection = await connect(called, listener.port, trust)
            assert connection.path.port == listener.port
            assert "ffff" not in connection.path.host
            assert await says_echo(connection)

    run(scenario())


def test_a_server_with_another_key_learns_nothing(run: Any, serve: Any, identity: Identity) -> None:
    served: list[Connection] = []

    async def handler(connection: Connection) -> None:
        served.append(connection)

    async def scenario() -> None:
        async with serve(identity, handler) as listener:
            with pytest.raises(WrongFingerprint) as caught:
                await connect("127.0.0.1", listener.port, ANY_KEY)
            assert caught.value.wanted == ANY_KEY.fingerprint
            assert caught.value.found == identity.fingerprint
            # The client's last handshake message never came, so no stream could carry a byte.
            assert listener.counts.connections == 0
            assert not served

    run(scenario())


def test_no_server_on_the_port(run: Any) -> None:
    async def scenario() -> None:
        with silent_socket() as sock:
            port = sock.getsockname()[1]
        with pytest.raises(ServerRefused, match="nothing listens") as caught:
            await connect("127.0.0.1", port, ANY_KEY)
        assert caught.value.port == port

    run(scenario())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "a..b"])
def test_a_name_without_address(run: Any, host: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ServerNotFound) as caught:
            await connect(host, 4433, ANY_KEY)
        assert caught.value.host == host

    run(scenario())


def test_no_way_to_the_machine(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutRoute(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("gpuwire.transport.connecting.socket.socket", WithoutRoute)

    async def scenario() -> None:
        with pytest.raises(ServerUnreachable, match="no way"):
            await connect("192.0.2.1", 4433, ANY_KEY)

    run(scenario())


def test_a_server_that_never_answers_meets_the_callers_deadline(run: Any) -> None:
    async def scenario() -> None:
        with silent_socket() as sock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await connect("127.0.0.1", sock.getsockname()[1], ANY_KEY)
            sock.setblocking(False)
            while True:
                try:
                    first = sock.recv(65_535)
                except BlockingIOError:
                    break
            assert first, "cancelling tells the server as well"

    run(scenario())


def test_silence_ends_an_attempt_by_itself(run: Any) -> None:
    async def scenario() -> None:
        with silent_socket() as sock:
            options = TransportOptions(idle_timeout_seconds=0.1)
            with pytest.raises(ConnectTimeout, match="firewall"):
                await connect("127.0.0.1", sock.getsockname()[1], ANY_KEY, options)

    run(scenario())


def test_a_dead_address_does_not_hide_a_live_one(
    run: Any, serve: Any, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with silent_socket() as dead:
            async with serve(identity, echo_once) as listener:

                def two_addresses(*args: Any, **kwargs: Any) -> list[Any]:
                    family = (socket.AF_INET, socket.SOCK_DGRAM, 17, "")
                    return [(*family, dead.getsockname()), (*family, ("127.0.0.1", listener.port))]

                trust = PinnedKey(identity.fingerprint)
                with monkeypatch.context() as patch:
                    patch.setattr(socket, "getaddrinfo", two_addresses)
                    connection = await connect("gpu-box", listener.port, trust)
                assert await says_echo(connection)

    run(scenario())


def test_a_quic_server_of_another_protocol(run: Any, identity: Identity) -> None:
    async def scenario() -> None:
        configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
        configuration.certificate = identity.certificate
        configuration.private_key = identity.key
        with silent_socket() as sock:
            port = sock.getsockname()[1]
        server = await serve_plain_quic("127.0.0.1", port, configuration=configuration)
        try:
            with pytest.raises(VersionMismatch, match="gpuwire/1"):
                await connect("127.0.0.1", port, PinnedKey(identity.fingerprint))
        finally:
            server.close()
            await asyncio.sleep(0)

    run(scenario())


class Authority:
    """A certificate authority of one's own."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        certificate = self._certify(self._key.public_key(), self._name, [], is_authority=True)
        self.path = directory / "authority.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def identity(self, *names: x509.GeneralName) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        return Identity(
            key, self._certify(key.public_key(), subject, list(names), is_authority=False)
        )

    def _certify(
        self, key: Any, subject: x509.Name, names: list[x509.GeneralName], *, is_authority: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def test_a_certificate_of_a_trusted_authority(run: Any, serve: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    by_address = authority.identity(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    by_name = authority.identity(x509.DNSName("gpu-box.example"))

    async def scenario() -> None:
        async with serve(by_address, echo_once) as listener:
            trust = AuthorityFile(authority.path)
            assert await says_echo(await connect("127.0.0.1", listener.port, trust))
        async with serve(by_name, echo_once) as listener:
            trust = AuthorityFile(authority.path, server_name="gpu-box.example")
            assert await says_echo(await connect("127.0.0.1", listener.port, trust))
            with pytest.raises(ConnectError, match="not accepted"):
                await connect("127.0.0.1", listener.port, AuthorityFile(authority.path))
            assert listener.counts.connections == 1

    run(scenario())


def test_a_certificate_that_no_authority_signed(
    run: Any, serve: Any, identity: Identity, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with serve(identity, echo_once) as listener:
            trust = AuthorityFile(authority.path, server_name="gpuwire")
            with pytest.raises(ConnectError, match="not accepted"):
                await connect("127.0.0.1", listener.port, trust)
            assert listener.counts.connections == 0

    run(scenario())
