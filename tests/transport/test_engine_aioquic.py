"""The engine by itself: order of sending, windows and datagram sizes, in simulated time."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from aioquic.quic.connection import QuicConnectionError
from aioquic.tls import Epoch

from gpuwire.transport import TransportOptions
from gpuwire.transport.engine import (
    StreamAcknowledged,
    StreamData,
    StreamWasReset,
    StreamWasStopped,
    Terminated,
    TerminationCause,
)
from gpuwire.transport.engine_aioquic_streams import HELD_PIECES
from transport.conftest import CLIENT_ADDRESS, SERVER_ADDRESS

MIB = 1 << 20
Engines = Callable[..., Any]


def data_events(pair: Any) -> list[StreamData]:
    return [event for event in pair.server_events if isinstance(event, StreamData)]


def test_control_goes_before_bulk_that_was_written_earlier(engines: Engines) -> None:
    pair = engines()
    bulk = [pair.client.open_stream(bidirectional=False) for _ in range(3)]
    for stream_id in bulk:
        pair.client.send(stream_id, bytes(200_000), end=True)
    control = pair.client.open_stream(bidirectional=True)
    pair.client.send(control, b"c" * 5_000, end=False)
    pair.settle()
    order = [event.stream_id for event in data_events(pair)]
    last_control = max(i for i, stream_id in enumerate(order) if stream_id == control)
    assert last_control < 6, "control data waited behind bulk packets"
    assert sum(len(event.data) for event in data_events(pair)) == 605_000


def test_bulk_streams_take_turns(engines: Engines) -> None:
    pair = engines()
    bulk = [pair.client.open_stream(bidirectional=False) for _ in range(4)]
    for stream_id in bulk:
        pair.client.send(stream_id, bytes(100_000), end=True)
    while not any(event.end for event in data_events(pair)):
        pair.turn()
        sent = dict.fromkeys(bulk, 0)
        for event in data_events(pair):
            sent[event.stream_id] += len(event.data)
        assert max(sent.values()) - min(sent.values()) <= 2 * 1_200
    pair.settle()
    assert sum(len(event.data) for event in data_events(pair)) == 400_000


def test_the_sender_stops_at_the_stream_window_until_bytes_are_consumed(engines: Engines) -> None:
    pair = engines(TransportOptions(stream_window_bytes=64_000))
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, bytes(200_000), end=True)
    pair.settle()
    assert sum(len(event.data) for event in data_events(pair)) == 64_000
    assert pair.server.consume(stream_id, 40_000)
    pair.settle()
    assert sum(len(event.data) for event in data_events(pair)) == 104_000
    assert pair.server.unconsumed_bytes == 64_000


def test_the_connection_window_bounds_all_streams_and_spares_room_for_control(
    engines: Engines,
) -> None:
    pair = engines(TransportOptions(stream_window_bytes=MIB, connection_window_bytes=160_000))
    for _ in range(3):
        pair.client.send(pair.client.open_stream(bidirectional=False), bytes(100_000), end=True)
    pair.settle()
    assert pair.server.unconsumed_bytes == 150_000
    control = pair.client.open_stream(bidirectional=True)
    pair.client.send(control, b"heartbeat", end=False)
    pair.settle()
    assert data_events(pair)[-1].data == b"heartbeat"


def test_a_lost_window_update_is_sent_again(engines: Engines) -> None:
    pair = engines(TransportOptions(stream_window_bytes=64_000))
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, bytes(128_000), end=True)
    pair.settle()
    pair.server.consume(stream_id, 64_000)
    lost = pair.server.datagrams_to_send(pair.now)
    assert lost
    pair.settle()
    assert sum(len(event.data) for event in data_events(pair)) == 128_000


def test_reset_gives_the_window_back(engines: Engines) -> None:
    pair = engines(TransportOptions(stream_window_bytes=64_000, connection_window_bytes=128_000))
    for _ in range(8):
        stream_id = pair.client.open_stream(bidirectional=False)
        pair.client.send(stream_id, bytes(40_000), end=False)
        pair.turn()
        pair.client.reset(stream_id, 7)
        pair.settle()
        delivered = sum(len(e.data) for e in data_events(pair) if e.stream_id == stream_id)
        pair.server.consume(stream_id, delivered)
        assert StreamWasReset(stream_id, 7) in pair.server_events
    assert pair.server.unconsumed_bytes == 0


def test_stop_reaches_the_sender(engines: Engines) -> None:
    pair = engines()
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, b"some", end=False)
    pair.settle()
    pair.server.stop(stream_id, 9)
    pair.settle()
    assert StreamWasStopped(stream_id, 9) in pair.client_events
    assert StreamWasReset(stream_id, 9) in pair.server_events


def test_bytes_survive_loss_and_are_acknowledged_in_order(engines: Engines) -> None:
    pair = engines()
    seen = 0

    def every_seventh_is_lost(data: bytes) -> bool:
        nonlocal seen
        seen += 1
        return seen % 7 != 0

    pair.passes = every_seventh_is_lost
    payload = bytes(i * 7 % 251 for i in range(300_000))
    view = memoryview(payload)
    stream_id = pair.client.open_stream(bidirectional=False)
    # Pieces of every size, so that frames straddle them.
    position = 0
    for size in [1, 10, 100, 1_000, 100_000, 3, 5, 7] * 10:
        pair.client.send(stream_id, view[position : position + size], end=False)
        position += len(view[position : position + size])
    pair.client.send(stream_id, view[position:], end=True)
    pair.settle(turns=2_000)
    assert b"".join(event.data for event in data_events(pair)) == payload
    positions = [e.position for e in pair.client_events if isinstance(e, StreamAcknowledged)]
    assert all(a < b for a, b in pairwise(positions))
    assert positions[-1] == len(payload) + 1
    assert pair.client.packets_lost > 0


def test_an_acknowledgement_rides_on_the_answer(engines: Engines) -> None:
    pair = engines()
    control = pair.client.open_stream(bidirectional=True)
    pair.client.send(control, b"question", end=False)
    pair.settle()
    pair.client.send(control, b"question", end=False)
    (question,) = pair.client.datagrams_to_send(pair.now)
    pair.server.receive([(question[0], ("192.0.2.1", 1000))], pair.now)
    pair.server.send(control, b"answer", end=False)
    (answer,) = pair.server.datagrams_to_send(pair.now)
    pair.client.receive([(answer[0], ("192.0.2.2", 4433))], pair.now)
    events = list(pair.client.events())
    assert StreamAcknowledged(control, 16, False) in events
    assert StreamData(control, (b"answer",), False) in events


def test_one_call_sends_one_burst(engines: Engines) -> None:
    pair = engines()
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, bytes(8 * MIB), end=True)
    for _ in range(12):  # the congestion window opens
        pair.turn()
    burst = pair.client.datagrams_to_send(pair.now)
    assert sum(len(data) for data, _ in burst) <= 129 * 1_024


def test_a_size_that_passes_is_taken_and_one_that_does_not_is_not(engines: Engines) -> None:
    wide = engines(TransportOptions(datagram_bytes=8_952))
    assert wide.client.datagram_bytes == wide.server.datagram_bytes == 8_952
    narrow = engines(TransportOptions(datagram_bytes=8_952), passes=lambda data: len(data) <= 1_472)
    stream_id = narrow.client.open_stream(bidirectional=False)
    narrow.client.send(stream_id, bytes(50_000), end=True)
    narrow.settle()
    assert sum(len(event.data) for event in data_events(narrow)) == 50_000
    assert narrow.client.datagram_bytes == 1_472
    assert narrow.client.packets_lost == 0, "a lost probe is no sign of congestion"


def test_a_path_that_narrows_is_survived(engines: Engines) -> None:
    pair = engines(TransportOptions(datagram_bytes=8_952))
    pair.passes = lambda data: len(data) <= 1_472
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, bytes(50_000), end=True)
    for _ in range(400):
        pair.turn()
        if any(event.end for event in data_events(pair)):
            break
    assert sum(len(event.data) for event in data_events(pair)) == 50_000
    pair.settle()
    assert pair.client.datagram_bytes == 1_472


def test_a_peer_that_opens_too_many_streams_is_cut_off(engines: Engines) -> None:
    pair = engines(TransportOptions(max_bulk_streams=8))
    # A peer that takes no notice of the limit it was told.
    pair.client._quic._remote_max_streams_uni = 1_000
    for _ in range(1_000):
        pair.client.send(pair.client.open_stream(bidirectional=False), b"x", end=True)
    pair.turn()
    end = next(event for event in pair.server_events if isinstance(event, Terminated))
    assert end.cause is TerminationCause.BROKEN_RULES
    assert len({event.stream_id for event in data_events(pair)}) <= 8


def test_a_well_behaved_peer_waits_for_streams_that_are_not_released(engines: Engines) -> None:
    pair = engines(TransportOptions(max_bulk_streams=8))
    for _ in range(20):
        pair.client.send(pair.client.open_stream(bidirectional=False), b"x", end=True)
    pair.settle()
    first = {event.stream_id for event in data_events(pair)}
    assert len(first) == 8, "streams that nobody has read must count against the limit"
    for stream_id in first:
        pair.server.consume(stream_id, 1)
        pair.server.release(stream_id)
    pair.settle()
    assert len({event.stream_id for event in data_events(pair)}) == 16


def test_silence_and_closing_are_told_apart(engines: Engines) -> None:
    silent = engines(TransportOptions(idle_timeout_seconds=5))
    silent.client.handle_timer(silent.now + 6)
    assert [e.cause for e in silent.client.events()] == [TerminationCause.SILENCE]
    closed = engines()
    closed.client.close(3, "enough")
    closed.turn()
    assert Terminated(TerminationCause.CLOSED_HERE, 3, "enough") in closed.client_events
    assert Terminated(TerminationCause.CLOSED_BY_PEER, 3, "enough") in closed.server_events


def test_keys_are_changed_before_they_are_worn(engines: Engines) -> None:
    pair = engines()
    pair.client._quic._key_good_until = pair.client._quic._packet_number + 50
    phase = pair.client._quic._cryptos[Epoch.ONE_RTT].send.key_phase
    stream_id = pair.client.open_stream(bidirectional=False)
    payload = bytes(i * 13 % 251 for i in range(300_000))
    pair.client.send(stream_id, payload, end=True)
    pair.settle()
    assert b"".join(event.data for event in data_events(pair)) == payload
    assert pair.client._quic._cryptos[Epoch.ONE_RTT].send.key_phase != phase
    assert pair.client.packets_lost == 0


def test_pieces_in_any_order_and_overlap_make_the_stream(engines: Engines) -> None:
    pair = engines(TransportOptions(stream_window_bytes=MIB))
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, b"\0", end=False)
    pair.settle()
    pair.server_events.clear()
    receiver = pair.server._quic._streams[stream_id].receiver
    payload = bytes(i * 7 % 251 for i in range(5_000))
    chance = random.Random(1)
    pieces = [(at, min(5_000, at + 400)) for at in range(1, 5_000, 150)]
    pieces += [(start, start + 37) for start in range(1, 4_900, 61)]
    chance.shuffle(pieces)
    for start, stop in pieces:
        receiver.take(start, payload[start:stop], stop == 5_000)
    pair.server_events += pair.server.events()
    assert b"".join(event.data for event in data_events(pair)) == payload[1:]
    assert data_events(pair)[-1].end
    assert not receiver._held


def test_a_stream_in_too_many_pieces_ends_the_connection(engines: Engines) -> None:
    pair = engines(TransportOptions(stream_window_bytes=MIB))
    stream_id = pair.client.open_stream(bidirectional=False)
    pair.client.send(stream_id, b"x", end=False)
    pair.settle()
    receiver = pair.server._quic._streams[stream_id].receiver
    with pytest.raises(QuicConnectionError, match="holes"):
        for offset in range(2, MIB, 2):
            receiver.take(offset, b"x", False)
    assert len(receiver._held) <= HELD_PIECES


def test_an_acknowledgement_travels_with_an_answer_that_comes_soon(engines: Engines) -> None:
    pair = engines()
    control = pair.client.open_stream(bidirectional=True)
    pair.client.send(control, b"hello", end=False)
    pair.settle()
    pair.client.send(control, b"a question", end=False)
    for data, _ in pair.client.datagrams_to_send(pair.now):
        pair.server.receive([(data, CLIENT_ADDRESS)], pair.now)
    for _ in range(6):
        assert pair.server.datagrams_to_send(pair.now) == [], "an acknowledgement by itself"
        pair.now += 0.001
    pair.server.send(control, b"the answer", end=False)
    assert len(pair.server.datagrams_to_send(pair.now)) == 1
    pair.now += 0.02
    assert pair.server.datagrams_to_send(pair.now) == [], "an acknowledgement by itself"


def test_bulk_bytes_are_acknowledged_without_waiting_for_an_answer(engines: Engines) -> None:
    pair = engines()
    pair.settle()
    control = pair.client.open_stream(bidirectional=True)
    bulk = pair.client.open_stream(bidirectional=False)
    for stream_id in (control, bulk):
        pair.client.send(stream_id, b"bytes", end=False)
        for data, _ in pair.client.datagrams_to_send(pair.now):
            pair.server.receive([(data, CLIENT_ADDRESS)], pair.now)
    pair.now += 0.001
    back = [data for data, _ in pair.server.datagrams_to_send(pair.now)]
    pair.client.receive([(data, SERVER_ADDRESS) for data in back], pair.now)
    told = [e.stream_id for e in pair.client.events() if isinstance(e, StreamAcknowledged)]
    assert sorted(told) == sorted((control, bulk))
