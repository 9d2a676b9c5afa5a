"""Segmentation offload: asked for message by message, refused by the kernel, and found out."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from typing import Any

import pytest

from gpuwire.transport import TransportOptions, datagrams
from gpuwire.transport.datagrams import DatagramSocket
from gpuwire.transport.offload import PHASE_PACKETS, Offload


def wanted(lines: list[str] | None = None) -> Offload:
    tell = lines.append if lines is not None else (lambda line: None)
    return Offload(wanted=True, available=True, tell=tell)


class Segmented(socket.socket):
    """Notes how datagrams are handed over; the kernel may be made to refuse."""

    calls: list[tuple[int, int | None]]
    refusal: int | None = None

    def sendmsg(self, parts: Any, ancillary: Any = (), *rest: Any) -> int:  # type: ignore[override]
        (_, _, size), *_ = ancillary
        self.calls.append((len(parts), int.from_bytes(size, sys.byteorder)))
        if self.refusal is not None:
            raise OSError(self.refusal, "refused")
        return super().sendmsg(parts, ancillary, *rest)

    def sendto(self, data: Any, address: Any) -> int:  # type: ignore[override]
        self.calls.append((1, None))
        return super().sendto(data, address)


class Ends:
    """A sending socket and a receiving one."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.too_large: list[int] = []
        self.news = asyncio.Event()
        raw = Segmented(socket.AF_INET, socket.SOCK_DGRAM)
        raw.calls = []
        raw.bind(("127.0.0.1", 0))
        self.raw = raw
        self.sender = DatagramSocket(raw, None, self._take, self._fail, self._refuse)
        listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listening.bind(("127.0.0.1", 0))
        self.receiver = DatagramSocket(listening, None, self._take, self._fail, self._refuse)
        self.to = ("127.0.0.1", self.receiver.port)

    async def until(self, count: int) -> None:
        while len(self.received) < count:
            self.news.clear()
            await self.news.wait()

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()

    def _take(self, batch: list[tuple[bytes, Any]]) -> None:
        self.received += [data for data, _ in batch]
        self.news.set()

    def _fail(self, error: OSError) -> None:
        raise error

    def _refuse(self, address: Any, size: int) -> None:
        self.too_large.append(size)


def test_equal_datagrams_go_in_one_call_and_a_single_one_never_does(run: Any) -> None:
    async def scenario() -> None:
        ends = Ends()
        sizes = [1_200] * 70 + [300] + [1_200] + [500] + [9]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        ends.sender.send([(data, ends.to) for data in sent], wanted())
        await ends.until(len(sent))
        assert ends.received == sent
        assert ends.raw.calls == [(54, 1_200), (17, 1_200), (2, 1_200), (1, None)]
        ends.close()

    run(scenario())


def test_without_being_asked_for_it_is_not_used(run: Any) -> None:
    async def scenario() -> None:
        ends = Ends()
        off = Offload(wanted=False, available=True, tell=lambda line: None)
        ends.sender.send([(bytes(100), ends.to)] * 3, off)
        await ends.until(3)
        assert ends.raw.calls == [(1, None)] * 3
        ends.close()

    run(scenario())


@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOTSUP])
def test_what_the_kernel_refuses_goes_out_unsegmented_at_once(run: Any, code: int) -> None:
    async def scenario() -> None:
        ends = Ends()
        lines: list[str] = []
        offload = wanted(lines)
        ends.raw.refusal = code
        sent = [bytes([number]) * 1_000 for number in range(10)]
        ends.sender.send([(data, ends.to) for data in sent], offload)
        await ends.until(10)
        assert ends.received == sent
        assert not ends.too_large, "a refusal of the call is none of the size"
        assert offload.info.state == "refused"
        assert "refused" in offload.info.reason
        assert len(lines) == 1
        ends.raw.calls.clear()
        ends.sender.send([(data, ends.to) for data in sent], offload)
        assert ends.raw.calls == [(1, None)] * 10, "it stays off on this path"
        await ends.until(20)
        ends.close()

    run(scenario())


def test_a_connection_whose_kernel_refuses_goes_on_and_says_so(
    run: Any, linked: Any, monkeypatch: Any
) -> None:
    class Refusing(socket.socket):
        def sendmsg(self, *arguments: Any) -> int:
            raise OSError(errno.EIO, "refused")

    lines: list[str] = []

    class Log:
        def basic(self, line: str) -> None:
            lines.append(line)

    options = TransportOptions(
        segmentation_offload=True,
        datagram_bytes=1_452,
        logger=Log(),  # type: ignore[arg-type]
    )

    async def scenario() -> None:
        monkeypatch.setattr(socket, "socket", Refusing)
        async with linked(client=options) as link:
            stream = link.client.open_bulk()
            await stream.write(bytes(300_000))
            stream.finish()
            arrived = await link.server.accept_bulk()
            assert len(await arrived.readexactly(300_000)) == 300_000
            offload = link.client.path.offload
            assert (offload.state, len(lines)) == ("refused", 1)
            assert offload.reason in lines[0]

    run(scenario())


def test_a_connection_whose_segments_are_lost_on_the_way_goes_on_without_it(
    run: Any, linked: Any, monkeypatch: Any
) -> None:
    """As on kernels and cards that damage them: the call succeeds, and nothing arrives."""

    class Losing(socket.socket):
        calls = 0

        def sendmsg(self, parts: Any, ancillary: Any = (), *rest: Any) -> int:  # type: ignore[override]
            Losing.calls += 1
            if Losing.calls % 2:
                return sum(map(len, parts))
            return super().sendmsg(parts, ancillary, *rest)

    options = TransportOptions(segmentation_offload=True, datagram_bytes=1_452)

    async def scenario() -> None:
        monkeypatch.setattr(socket, "socket", Losing)
        async with linked(client=options) as link:
            while link.client.path.offload.state != "lossy":
                stream = link.client.open_bulk()
                await stream.write(bytes(300_000))
                stream.finish()
                arrived = await link.server.accept_bulk()
                assert await arrived.readexactly(300_000) == bytes(300_000)
            assert "without" in link.client.path.offload.reason
            calls = Losing.calls
            stream = link.client.open_bulk()
            await stream.write(bytes(300_000))
            await (await link.server.accept_bulk()).readexactly(300_000)
            assert Losing.calls == calls, "it stays off on this path"

    run(scenario())


def test_a_connection_uses_it_where_it_works(run: Any, linked: Any) -> None:
    options = TransportOptions(segmentation_offload=True, datagram_bytes=1_452)

    async def scenario() -> None:
        async with linked(options, options) as link:
            stream = link.client.open_bulk()
            await stream.write(bytes(2_000_000))
            stream.finish()
            arrived = await link.server.accept_bulk()
            assert await arrived.readexactly(2_000_000) == bytes(2_000_000)
            assert link.client.path.offload.state == "on"
            assert link.client.path.packets_lost == 0

    run(scenario())


def phases(offload: Offload, *losses: float) -> None:
    """Reports full phases with these shares of loss, a second apart."""
    sent = lost = 0
    now = 0.0
    offload.observe(sent=sent, lost=lost, now=now, round_trip=0.05)
    for loss in losses:
        now += 1.0
        offload.observe(sent=sent, lost=lost, now=now, round_trip=0.05)
        sent += PHASE_PACKETS
        lost += int(loss * PHASE_PACKETS)
        offload.observe(sent=sent, lost=lost, now=now, round_trip=0.05)


def test_much_more_loss_with_it_than_without_turns_it_off() -> None:
    lines: list[str] = []
    offload = wanted(lines)
    phases(offload, 0.2, 0.0)
    assert (offload.info.state, offload.is_active) == ("lossy", False)
    assert len(lines) == 1


def test_loss_with_it_starts_a_trial_without() -> None:
    offload = wanted()
    phases(offload, 0.2)
    assert (offload.info.state, offload.is_active) == ("on trial", False)


def test_a_path_that_loses_either_way_keeps_it() -> None:
    offload = wanted()
    phases(offload, 0.1, 0.1)
    assert offload.info.state == "on"


def test_a_little_loss_is_no_suspicion() -> None:
    offload = wanted()
    phases(offload, 0.01, 0.01, 0.01)
    assert offload.info.state == "on"


def test_silence_with_it_is_tried_without() -> None:
    offload = wanted()
    offload.observe(sent=0, lost=0, now=0.0, round_trip=0.05)
    offload.observe(sent=10, lost=0, now=1.0, round_trip=0.05, timeouts=2)
    assert offload.info.state == "on trial"


def test_a_system_without_it_says_so() -> None:
    lines: list[str] = []
    offload = Offload(wanted=True, available=False, tell=lines.append)
    assert offload.info.state == "unavailable"
    assert len(lines) == 1


def test_coalesced_datagrams_are_taken_apart(run: Any) -> None:
    if not datagrams.HAS_OFFLOAD:
        return

    async def scenario() -> None:
        ends = Ends()
        sent = [bytes([number]) * 1_000 for number in range(40)] + [b"short"]
        ends.sender.send([(data, ends.to) for data in sent], wanted())
        await ends.until(len(sent))
        assert ends.received == sent
        ends.close()

    run(scenario())
