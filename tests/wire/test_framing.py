"""Cutting bytes into messages: wherever they are cut, and never more kept than allowed."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.ids import RequestId
from gpuwire.wire.framing import (
    PREFIX,
    FrameReader,
    decode_bulk_header,
    encode_bulk_header,
)
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import BulkHeader
from wire import strategies


def framed(payload: bytes) -> bytes:
    return PREFIX.pack(len(payload)) + payload


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.data(), st.lists(st.binary(min_size=1, max_size=50), max_size=8))
def test_messages_come_whole_and_in_order_wherever_the_bytes_are_cut(
    data: st.DataObject, payloads: list[bytes]
) -> None:
    pieces = data.draw(strategies.cuts(b"".join(map(framed, payloads))))
    reader = FrameReader(50)
    found = [bytes(message) for piece in pieces for message in reader.feed(piece)]
    assert found == payloads
    assert reader.pending == 0


def test_a_message_in_one_piece_is_not_copied() -> None:
    data = framed(b"one") + framed(b"two")
    for message in FrameReader(50).feed(data):
        assert message.obj is data


def test_a_message_in_pieces_stays_as_it_is_while_more_comes() -> None:
    reader = FrameReader(50)
    assert list(reader.feed(framed(b"one")[:5])) == []
    (message,) = reader.feed(framed(b"one")[5:] + framed(b"two")[:6])
    (other,) = reader.feed(framed(b"two")[6:])
    assert (message, other) == (b"one", b"two")
    assert message.readonly


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_longer_message_is_refused_before_it_is_kept(cut: int) -> None:
    data = PREFIX.pack(51)
    reader = FrameReader(50)
    assert list(reader.feed(data[:cut])) == []
    with pytest.raises(LimitBreached, match="51 bytes") as raised:
        list(reader.feed(data[cut:] + bytes(10_000)))
    assert (raised.value.value, raised.value.limit) == (51, 50)
    assert reader.pending <= 4


def test_an_announced_length_takes_no_memory_before_its_bytes_come() -> None:
    reader = FrameReader(1 << 30)
    tracemalloc.start()
    try:
        assert list(reader.feed(PREFIX.pack(1 << 30) + b"x")) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_an_empty_message_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        list(FrameReader(50).feed(PREFIX.pack(0)))


def test_the_limit_may_rise_between_two_messages() -> None:
    reader = FrameReader(3)
    messages = reader.feed(framed(b"one") + framed(b"longer"))
    assert next(messages) == b"one"
    reader.limit = 6
    assert next(messages) == b"longer"


def test_bulk_header() -> None:
    header = BulkHeader(RequestId(258), 1 << 40)
    data = encode_bulk_header(header)
    assert data.hex() == "00000000000001020000010000000000"
    assert decode_bulk_header(data, DEFAULT_LIMITS) == header


def test_bulk_header_of_a_stream_in_pieces() -> None:
    header = BulkHeader(RequestId(258), 1 << 40, 16)
    data = encode_bulk_header(header)
    assert data.hex() == "00000000000001021000010000000000"
    assert decode_bulk_header(data, DEFAULT_LIMITS) == header


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytes(15), MalformedMessage),
        (bytes(17), MalformedMessage),
        (bytes(16), MalformedMessage),
        (b"\xff" * 8 + bytes(8), MalformedMessage),
        (bytes(7) + b"\x01" + bytes(6) + b"\x01\x01", LimitBreached),
        (bytes(7) + b"\x01" + b"\x03" + bytes(7), MalformedMessage),
    ],
)
def test_a_wrong_bulk_header_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_bulk_header(data, WireLimits(max_bulk_bytes=256))
