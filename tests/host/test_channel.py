"""The channel: messages over a real socket pair, whole, in order, of any size."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.host import channel_messages
from gpuwire.host.channel import Channel
from gpuwire.host.channel_messages import (
    ChannelMessage,
    EndSession,
    OpenSession,
    Ping,
    SlotFree,
    Stop,
    Tasks,
    UploadChunk,
    decode,
    encode,
)

LARGEST = 2**64 - 1
numbers = st.integers(0, LARGEST)
messages = st.one_of(
    st.builds(Tasks, numbers, numbers, st.binary(max_size=300)),
    st.builds(OpenSession, numbers, numbers, numbers),
    st.builds(UploadChunk, numbers, numbers, numbers, numbers, numbers),
    st.builds(SlotFree, numbers),
    st.just(Stop()),
)


class End:
    """One end of a channel and what came out of it."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[ChannelMessage] = asyncio.Queue()
        self.lost = asyncio.Event()

    async def open(self, connected: socket.socket) -> None:
        self.channel = await Channel.over(connected, self.received.put_nowait, self.lost.set)


@asynccontextmanager
async def two_ends() -> AsyncIterator[tuple[End, End]]:
    left, right = End(), End()
    sockets = socket.socketpair()
    await left.open(sockets[0])
    await right.open(sockets[1])
    yield left, right
    left.channel.close()
    right.channel.close()
    await left.lost.wait()
    await right.lost.wait()


@settings(derandomize=True, deadline=None)
@given(messages)
def test_a_message_comes_back_from_its_bytes(message: ChannelMessage) -> None:
    assert decode(memoryview(b"".join(encode(message)))) == message


@settings(derandomize=True, deadline=None)
@given(st.lists(messages, min_size=1, max_size=8), st.lists(st.integers(1, 700), max_size=20))
def test_messages_survive_any_cut(sent: list[ChannelMessage], cuts: list[int]) -> None:
    received: list[ChannelMessage] = []
    channel = Channel(received.append, lambda: None)
    data = b"".join(b"".join(encode(message)) for message in sent)
    for cut in (*cuts, len(data)):
        channel.data_received(data[:cut])
        data = data[cut:]
    assert received == sent


def test_every_kind_has_a_number_of_its_own() -> None:
    kinds = {encode(message)[0][4] for message in (Ping(1), SlotFree(1), EndSession(1), Stop())}
    assert len(kinds) == 4


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_537, 3_000_001])
def test_payloads_of_any_size_arrive_in_order(size: int) -> None:
    async def scenario() -> None:
        async with two_ends() as (left, right):
            payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
            left.channel.send(Tasks(7, 3, payload))
            left.channel.send(Ping(9))
            assert await right.received.get() == Tasks(7, 3, payload)
            assert await right.received.get() == Ping(9)

    asyncio.run(scenario())


def test_both_directions_at_once() -> None:
    async def scenario() -> None:
        async with two_ends() as (left, right):
            payload = bytes(1_000_000)
            for _ in range(4):
                left.channel.send(Tasks(1, 1, payload))
                right.channel.send(Tasks(2, 1, payload))
            for _ in range(4):
                assert (await right.received.get()).session == 1  # type: ignore[union-attr]
                assert (await left.received.get()).session == 2  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_the_end_of_one_side_is_seen_by_the_other_and_sending_goes_nowhere() -> None:
    async def scenario() -> None:
        async with two_ends() as (left, right):
            left.channel.close()
            await right.lost.wait()
            right.channel.send(Ping(1))
            await left.lost.wait()

    asyncio.run(scenario())


def test_no_message_is_missing_from_the_table() -> None:
    declared = {
        value
        for value in vars(channel_messages).values()
        if isinstance(value, type) and hasattr(value, "__dataclass_fields__")
    } - {channel_messages._Form}
    assert declared == set(channel_messages._BY_CLASS)
