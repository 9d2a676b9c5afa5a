"""Device hosts that die, servers that stop: who is told, what is left."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from gpuwire.errors import DeviceLost, NoSuchDevice, ServerStartError, ServerStopped
from gpuwire.ir.tensors import TensorType
from gpuwire.server import Server
from gpuwire.server.device_host import DeviceHost
from gpuwire.transport import Ticket
from gpuwire.wire.messages import Done
from host_tasks import F4, add, read, register, sync, values
from plain_client import connect_plainly, plain_client

LARGE = TensorType(F4.dtype, (5 * 256 * 1024,))


def host_process(log) -> int:
    """The process id in the last line that tells one."""
    found = [re.search(r"owned by process (\d+)", line) for line in log.lines]
    return int([match for match in found if match][-1][1])


def children() -> set[int]:
    """The child processes of this one."""
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return set(map(int, text.split()))


def shared_memory() -> int:
    """Anonymous files for slots that this process has mapped or open."""
    return Path("/proc/self/maps").read_text().count("gpuwire-slots")


def test_a_killed_host_is_told_to_its_sessions_and_replaced(serve, runner, log) -> None:
    async def scenario() -> None:
        async with serve() as server:
            one, two = [await connect_plainly(server.ticket) for _ in range(2)]
            one.send(register(1, [1]), read(1, request=2))
            await one.reply(2)
            two.send(register(1, None, LARGE, request=1), sync(2))
            two.begin_upload(1, LARGE.nbytes).write_nowait(bytes(2_000_000))
            first = host_process(log)
            os.kill(first, signal.SIGKILL)
            for client in (one, two):
                error = await client.ended
                assert isinstance(error, DeviceLost)
                assert error.device == 0
                assert "SIGKILL" in error.reason
                client.vanish()
            async with plain_client(server.ticket) as client:
                client.send(register(1, [4]), add(1, 1.0, 2), read(2, request=3))
                assert values((await client.reply(3)).data) == [5]
            assert host_process(log) != first
            assert any(
                "device 0: the device host was ended by signal SIGKILL" in line
                for line in log.lines
            )

    runner.run(scenario())


def test_a_host_that_dies_too_often_is_given_up(serve, runner, log) -> None:
    async def scenario() -> None:
        async with serve(max_host_restarts=0) as server:
            os.kill(host_process(log), signal.SIGKILL)
            await log.line("given up")
            with pytest.raises(DeviceLost, match="given up after 0 restarts"):
                await connect_plainly(server.ticket)
            async with plain_client(server.ticket, device=None) as client:
                assert len(client.welcome.devices) == 1

    runner.run(scenario())


def test_a_host_that_hangs_is_killed(serve, runner, log, monkeypatch) -> None:
    watch = DeviceHost.watch

    async def impatient(host: DeviceHost, seconds: float) -> None:
        await watch(host, 0.3)

    monkeypatch.setattr(DeviceHost, "watch", impatient)
    monkeypatch.setattr("gpuwire.server.device_host.PING_SECONDS", 0.05)

    async def scenario() -> None:
        async with serve() as server:
            client = await connect_plainly(server.ticket)
            os.kill(host_process(log), signal.SIGSTOP)
            error = await client.ended
            assert isinstance(error, DeviceLost)
            assert "no sign of life" in error.reason
            client.vanish()
            async with plain_client(server.ticket):
                pass

    runner.run(scenario())


def test_stopping_tells_sessions_and_leaves_nothing(serve, runner) -> None:
    async def scenario() -> None:
        children_before, memory_before = children(), shared_memory()
        async with serve() as server:
            session = await connect_plainly(server.ticket)
            listing = await connect_plainly(server.ticket, device=None)
            session.send(register(1, None, LARGE, request=1))
            session.begin_upload(1, LARGE.nbytes).write_nowait(bytes(2_000_000))
            assert len(children() - children_before) == 1
            assert shared_memory() > memory_before
        assert isinstance(await session.ended, ServerStopped)
        await listing.connection.wait_closed()
        assert children() == children_before
        assert shared_memory() == memory_before
        session.vanish()
        listing.vanish()

    runner.run(scenario())


def test_a_port_that_is_taken_is_said_and_leaves_no_process(
    shared_server, runner, tmp_path
) -> None:
    async def scenario() -> None:
        before = children()
        config = shared_server.config
        for options, expected in (
            ({"port": shared_server.port}, ServerStartError),
            ({"port": 0, "devices": (99,)}, NoSuchDevice),
        ):
            server = Server(config, host="127.0.0.1", state_dir=tmp_path, **options)
            with pytest.raises(expected):
                await server.start()
            assert children() == before

    runner.run(scenario())


def test_a_host_that_cannot_start_is_an_error(shared_server, runner, tmp_path, monkeypatch) -> None:
    async def scenario() -> None:
        before = children()
        for program, expected in (("/bin/false", DeviceLost), ("/no such", ServerStartError)):
            monkeypatch.setattr(sys, "executable", program)
            server = Server(shared_server.config, host="127.0.0.1", port=0, state_dir=tmp_path)
            with pytest.raises(expected):
                await server.start()
        assert children() == before

    runner.run(scenario())


def test_a_client_that_comes_before_the_devices_waits(
    shared_server, runner, tmp_path, monkeypatch
) -> None:
    opening = asyncio.Event()
    start_devices = Server._start_devices

    async def noted(server: Server) -> None:
        opening.set()
        await start_devices(server)

    monkeypatch.setattr(Server, "_start_devices", noted)

    async def scenario() -> None:
        shared = Ticket.parse(shared_server.ticket)
        server = Server(
            shared_server.config, host="127.0.0.1", port=0, state_dir=shared_server.state_dir
        )
        starting = asyncio.create_task(server.start())
        await opening.wait()
        ticket = Ticket("127.0.0.1", server.port, shared.fingerprint, shared.token).format()
        async with plain_client(ticket) as client:
            client.send(sync(1))
            assert isinstance(await client.reply(1), Done)
        await starting
        assert server.ticket == ticket
        await server.stop()

    runner.run(scenario())


def test_many_clients_that_come_and_go_at_once(shared_server, runner) -> None:
    async def one() -> None:
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, [1]), read(1, request=2))
            assert values((await client.reply(2)).data) == [1]

    async def scenario() -> None:
        for _ in range(3):
            await asyncio.gather(*(one() for _ in range(8)))

    runner.run(scenario())
