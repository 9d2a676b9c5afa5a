"""Congestion control on a simulated line: 200 Mb/s, 50 ms, with and without loss."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuwire.transport import Identity, TransportOptions
from gpuwire.transport.congestion import NEAR_SECONDS, Pacer, Phase, RateControl
from relay import LinkProfile
from simulated_link import Simulation

MIB = 1 << 20
LINE = LinkProfile(delay_seconds=0.025, bytes_per_second=25e6, queue_bytes=1_250_000)
OPTIONS = TransportOptions(datagram_bytes=8_952)


def share_of_the_line(simulation: Simulation, count: int, rate: float = 25e6) -> float:
    return count / simulation.upload(count) / rate


@pytest.mark.parametrize(("loss", "least"), [(0.0, 0.9), (0.001, 0.7), (0.01, 0.5)])
@pytest.mark.parametrize("queue_bytes", [250_000, 1_250_000])
def test_most_of_the_line_is_used(
    identity: Identity, loss: float, least: float, queue_bytes: int
) -> None:
    profile = replace(LINE, loss=loss, queue_bytes=queue_bytes)
    simulation = Simulation(identity, OPTIONS, profile)
    simulation.upload(4 * MIB)  # the rate is found
    assert share_of_the_line(simulation, 24 * MIB) >= least


def test_small_datagrams_do_as_well(identity: Identity) -> None:
    simulation = Simulation(identity, replace(OPTIONS, datagram_bytes=1_452), LINE)
    simulation.upload(4 * MIB)
    assert share_of_the_line(simulation, 8 * MIB) >= 0.85


def test_a_line_that_slows_down_is_followed_without_filling_its_queue(identity: Identity) -> None:
    simulation = Simulation(identity, OPTIONS, LINE)
    simulation.upload(8 * MIB)
    simulation.up.profile = replace(LINE, bytes_per_second=5e6, queue_bytes=500_000)
    simulation.upload(4 * MIB)
    lost = simulation.up.counters.overflowed
    assert share_of_the_line(simulation, 8 * MIB, 5e6) >= 0.8
    sent = 8 * MIB / 8_952
    assert simulation.up.counters.overflowed - lost <= 0.1 * sent


def test_a_line_that_speeds_up_is_followed(identity: Identity) -> None:
    slow = replace(LINE, bytes_per_second=5e6)
    simulation = Simulation(identity, OPTIONS, slow)
    simulation.upload(4 * MIB)
    simulation.up.profile = LINE
    simulation.upload(16 * MIB)
    assert share_of_the_line(simulation, 16 * MIB) >= 0.8


def test_bytes_on_the_wire_are_little_more_than_the_payload(identity: Identity) -> None:
    simulation = Simulation(identity, replace(OPTIONS, datagram_bytes=1_452), LINE)
    simulation.upload(4 * MIB)
    before = simulation.up.counters.passed_bytes
    simulation.upload(8 * MIB)
    assert (simulation.up.counters.passed_bytes - before) / (8 * MIB) <= 1.06


def test_a_near_path_has_a_small_window_and_no_pacing(identity: Identity) -> None:
    near = LinkProfile(delay_seconds=NEAR_SECONDS / 10)
    simulation = Simulation(identity, OPTIONS, near)
    simulation.upload(4 * MIB)
    control = simulation.client._quic.congestion
    assert control.is_near
    assert control.pacing_rate is None
    assert control.congestion_window <= 512 * 1024


def test_the_round_trip_is_measured_anew_with_a_small_window(identity: Identity) -> None:
    simulation = Simulation(identity, OPTIONS, replace(LINE, bytes_per_second=2e6))
    seen: set[Phase] = set()
    control: RateControl = simulation.client._quic.congestion
    stream = simulation.client.open_stream(bidirectional=False)
    simulation.client.send(stream, memoryview(bytes(24 * MIB)), end=True)

    def done() -> bool:
        seen.add(control.phase)
        return simulation.received >= 24 * MIB

    simulation.run(done)
    assert seen == set(Phase)


def test_the_pacer_lets_out_what_the_rate_allows() -> None:
    pacer, rate = Pacer(), 10e6
    chance = random.Random(1)
    now = sent = 0.0
    pacer.allowance(now, rate, 1_200)
    while now < 1.0:
        now += chance.random() * 0.004
        count = pacer.allowance(now, rate, 1_200)
        pacer.spend(count)
        sent += count
    assert 0.9 * rate <= sent / now <= 1.05 * rate
    assert pacer.allowance(now + 60, rate, 1_200) <= 0.011 * rate, "a pause is no licence"
