"""Who is let in, and what each refusal says; over real QUIC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuwire.errors import (
    NoSuchDevice,
    ProtocolError,
    QuotaExceeded,
    TokenRejected,
    UploadTooLarge,
    VersionMismatch,
)
from gpuwire.server import AdmissionRequest, Grant, TokenLimits, TokenStore, reception
from gpuwire.server.admission import tighter
from gpuwire.transport import Ticket
from gpuwire.wire.messages import ReadTensor
from host_tasks import add, register
from plain_client import connect_plainly, plain_client, reach


def test_each_bad_token_is_refused_with_its_reason(shared_server, runner) -> None:
    async def scenario() -> None:
        store = TokenStore(shared_server.state_dir)
        expired = store.add("brief", expires=datetime.now(UTC) - timedelta(seconds=1))
        ended = store.add("ended")
        store.revoke("ended")
        tokens = {"": "missing", "no such": "wrong", expired: "expired", ended: "revoked"}
        for token, reason in tokens.items():
            with pytest.raises(TokenRejected) as caught:
                await connect_plainly(shared_server.ticket, token=token)
            assert caught.value.reason == reason
        for device in (None, 0):
            with pytest.raises(TokenRejected):
                await connect_plainly(shared_server.ticket, device=device, token="no such")

    runner.run(scenario())


def test_no_secret_reaches_the_log(strict_server, runner, log) -> None:
    async def scenario() -> None:
        secret = Ticket.parse(strict_server.ticket).token
        async with plain_client(strict_server.ticket):
            pass
        await log.line("closed")
        with pytest.raises(TokenRejected):
            await connect_plainly(strict_server.ticket, token=secret[:-1])
        text = "\n".join(log.lines)
        assert "opened: device 0, token 'default', plain client at 127.0.0.1:" in text
        assert "refused plain client at 127.0.0.1:" in text
        assert secret[:-1] not in text

    runner.run(scenario())


def test_a_device_that_is_not_there(shared_server, runner) -> None:
    async def scenario() -> None:
        async with plain_client(shared_server.ticket, device=None) as client:
            devices = client.welcome.devices
        with pytest.raises(NoSuchDevice) as caught:
            await connect_plainly(shared_server.ticket, device=len(devices))
        assert (caught.value.index, caught.value.count) == (len(devices), len(devices))

    runner.run(scenario())


def test_no_common_version_names_both(shared_server, runner) -> None:
    async def scenario() -> None:
        with pytest.raises(VersionMismatch) as caught:
            await connect_plainly(shared_server.ticket, versions=(98, 99))
        assert "98" in str(caught.value)
        assert "speaks 1" in str(caught.value)

    runner.run(scenario())


def test_the_devices_are_listed_without_a_session(shared_server, runner) -> None:
    async def scenario() -> None:
        async with plain_client(shared_server.ticket, device=None) as client:
            assert client.welcome.session is None
            device = client.welcome.devices[0]
            assert device.index == 0
            assert device.name
            assert "float32" in device.dtypes

    runner.run(scenario())


def test_a_listing_is_logged_as_one_also_if_its_client_just_leaves(serve, runner, log) -> None:
    async def scenario() -> None:
        async with serve() as server:
            client = await connect_plainly(server.ticket, device=None)
            client.vanish()
            await client.connection.wait_closed()
            assert "token 'default'" in await log.line("devices listed")
        assert not any("refused" in line for line in log.lines)

    runner.run(scenario())


def test_bytes_that_are_no_hello_are_answered_with_the_reason(shared_server, runner) -> None:
    async def scenario() -> None:
        for garbage in (b"\x00\x00\x00\x05hello", b"\xff\xff\xff\xff", bytes(1000)):
            client = await reach(shared_server.ticket)
            client.control.writer.write_nowait(garbage)
            assert isinstance(await client.ended, ProtocolError)
            client.vanish()
        async with plain_client(shared_server.ticket):
            pass

    runner.run(scenario())


def test_silence_before_the_hello_ends(serve, runner, log, monkeypatch) -> None:
    monkeypatch.setattr(reception, "HELLO_SECONDS", 0.3)

    async def scenario() -> None:
        async with serve() as server:
            client = await reach(server.ticket)
            client.control.writer.write_nowait(b"\x00\x00")
            assert "no Hello" in str(await client.ended)
            client.vanish()
            mute = await reach(server.ticket)
            await mute.connection.wait_closed()
            mute.vanish()

    runner.run(scenario())


def test_the_server_takes_so_many_sessions_and_no_more(strict_server, runner, log) -> None:
    async def scenario() -> None:
        async with plain_client(strict_server.ticket):
            second = await connect_plainly(strict_server.ticket)
            with pytest.raises(QuotaExceeded) as caught:
                await connect_plainly(strict_server.ticket)
            assert (caught.value.quota, caught.value.limit) == ("server sessions", 2)
            await second.close()
            await log.line("closed")
            await (await connect_plainly(strict_server.ticket)).close()

    runner.run(scenario())


def test_a_token_keeps_to_its_limits(shared_server, runner) -> None:
    async def scenario() -> None:
        limits = TokenLimits(max_memory_bytes=4096, max_upload_bytes=64, max_sessions=1)
        token = TokenStore(shared_server.state_dir).add("small", limits=limits)
        client = await connect_plainly(shared_server.ticket, token=token)
        assert client.welcome.limits.max_memory_bytes == 4096
        assert client.welcome.limits.max_upload_bytes == 64
        with pytest.raises(QuotaExceeded, match="allows 1 sessions"):
            await connect_plainly(shared_server.ticket, token=token)
        client.send(register(1, [1.0] * 17), add(1, 1.0, 2), ReadTensor(0, 9, 2))
        assert (await client.reply(9)).error.code == UploadTooLarge.code
        await client.close()
        elsewhere = TokenStore(shared_server.state_dir).add(
            "elsewhere", limits=TokenLimits(devices=(7,))
        )
        with pytest.raises(QuotaExceeded, match="no device 0, only 7"):
            await connect_plainly(shared_server.ticket, token=elsewhere)

    runner.run(scenario())


def test_an_authorizer_replaces_the_tokens(serve, runner) -> None:
    asked: list[AdmissionRequest] = []

    async def authorizer(request: AdmissionRequest) -> Grant:
        asked.append(request)
        if request.token != "open sesame":
            raise TokenRejected("not that word", reason="wrong")
        return Grant("ali", TokenLimits(max_upload_bytes=5))

    async def scenario() -> None:
        async with serve(authorizer=authorizer) as server:
            assert Ticket.parse(server.ticket).token == ""
            with pytest.raises(TokenRejected, match="not that word"):
                await connect_plainly(server.ticket)
            client = await connect_plainly(server.ticket, token="open sesame")
            assert client.welcome.limits.max_upload_bytes == 5
            await client.close()
            assert asked[1].client == "plain client"
            assert asked[1].address.startswith("127.0.0.1:")

    runner.run(scenario())


@pytest.mark.parametrize(("one", "two", "both"), [(0, 0, 0), (0, 5, 5), (5, 0, 5), (7, 5, 5)])
def test_the_tighter_limit_counts_and_zero_is_none(one: int, two: int, both: int) -> None:
    assert tighter(one, two) == both
