"""The client with a real server and a real adapter behind it, each in a process of its own."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuwire.client import Device, aio, connect, list_devices
from gpuwire.client.tensor import Tensor
from gpuwire.config import Config, RemoteConfig
from gpuwire.errors import (
    ConnectTimeout,
    ExecutionError,
    GpuwireError,
    LinkLost,
    NoSuchDevice,
    ServerNotFound,
    ServerRefused,
    ServerStopped,
    TicketError,
    TokenRejected,
    WrongFingerprint,
)
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, ShapeAttributes
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar
from gpuwire.transport import Identity, Ticket
from servers import ServerProcess

ADD, FULL = OPERATIONS["add"], OPERATIONS["full"]
ONE = Scalar(1.0, dt.float32)
VALUES = np.arange(6, dtype="<f4").reshape(2, 3)
WAIT = 30.0


@pytest.fixture
def dev(server_ticket: str) -> Iterator[Device]:
    with connect(server_ticket, config=Config()) as device:
        yield device


def plus_one(dev: Device, tensor: Tensor) -> Tensor:
    return dev.record(ADD, (tensor, ONE), NO_ATTRIBUTES)


# --- What works ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (64, 64), (300, 1000)])
@pytest.mark.parametrize("name", ["bool", "int32", "float32"])
def test_values_of_any_shape_come_back_as_they_went(
    dev: Device, name: str, shape: tuple[int, ...]
) -> None:
    values = (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(name)
    assert np.array_equal(dev.read(dev.upload(values)), values)


def test_a_long_chain_without_a_read_is_right(dev: Device) -> None:
    tensor = dev.upload(VALUES)
    for _ in range(500):
        tensor = plus_one(dev, tensor)
    assert np.array_equal(dev.read(tensor), VALUES + 500)


def test_threads_share_tensors_and_each_reads_what_was_made_for_it(dev: Device) -> None:
    shared = plus_one(dev, dev.upload(VALUES))
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        tensor = shared
        for _ in range(number + 1):
            tensor = plus_one(dev, tensor)
        found[number] = dev.read(tensor)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert np.array_equal(found[number], VALUES + 2 + number)


def test_a_sync_waits_for_uploads_too(dev: Device) -> None:
    values = np.arange(500_000, dtype="<f4")
    kept = [dev.upload(values[start : start + 100_000]) for start in range(0, 500_000, 100_000)]
    dev.sync()
    assert dev.stats().bytes_sent > values.nbytes
    assert len(kept) == 5


def test_many_reads_are_in_flight_at_once(server_ticket: str) -> None:
    async def program() -> None:
        async with aio.connect(server_ticket, config=Config()) as dev:
            tensors = [dev.upload(VALUES + number) for number in range(100)]
            arrays = await asyncio.gather(*(dev.read(tensor) for tensor in tensors))
            assert all(np.array_equal(array, VALUES + n) for n, array in enumerate(arrays))

    asyncio.run(program())


def test_a_failure_on_the_device_names_the_line_and_the_rest_goes_on(dev: Device) -> None:
    elements = dev.info.max_buffer_bytes  # Four bytes each: no buffer is that large.
    where = f"{__file__}:{sys._getframe().f_lineno + 1}"
    huge = dev.record(FULL, (ONE,), ShapeAttributes((elements,)))
    spoilt = plus_one(dev, huge)
    sound = plus_one(dev, dev.upload(VALUES))
    with pytest.raises(ExecutionError) as caught:
        dev.read(spoilt)
    assert caught.value.operation == "full"
    assert caught.value.location == where
    assert where in str(caught.value)
    assert isinstance(caught.value.__cause__, GpuwireError)
    assert np.array_equal(dev.read(sound), VALUES + 1)
    dev.sync()  # The failure was reported.


def test_a_sync_raises_a_failure_that_no_read_has_met(dev: Device) -> None:
    huge = dev.record(FULL, (ONE,), ShapeAttributes((dev.info.max_buffer_bytes,)))
    with pytest.raises(ExecutionError):
        dev.sync()
    dev.sync()
    del huge


# --- Connecting ------------------------------------------------------------------------------


@pytest.fixture
def ticket(server_ticket: str) -> Ticket:
    return Ticket.parse(server_ticket)


def changed(ticket: Ticket, **changes: object) -> str:
    parts: dict[str, object] = {
        "host": ticket.host,
        "port": ticket.port,
        "fingerprint": ticket.fingerprint,
        "token": ticket.token,
        **changes,
    }
    return Ticket(**parts).format()  # type: ignore[arg-type]


def test_the_devices_of_a_server_are_listed(server_ticket: str) -> None:
    devices = list_devices(server_ticket, config=Config())
    assert [device.index for device in devices] == list(range(len(devices)))
    assert "float32" in devices[0].dtypes


def test_a_port_where_nothing_listens_refuses(ticket: Ticket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ServerRefused) as caught:
        connect(changed(ticket, port=port), config=Config())
    assert (caught.value.host, caught.value.port) == ("127.0.0.1", port)


def test_a_port_that_never_answers_is_a_timeout_within_the_deadline(ticket: Ticket) -> None:
    config = Config(remote=RemoteConfig(connect_timeout_seconds=0.3))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(ConnectTimeout, match=r"within 0\.3 s") as caught:
            connect(changed(ticket, port=port), config=config)
    assert (caught.value.port, caught.value.seconds) == (port, 0.3)


def test_a_name_without_an_address_is_not_found(ticket: Ticket) -> None:
    with pytest.raises(ServerNotFound):
        connect(changed(ticket, host="gpu-box.invalid"), config=Config())


def test_a_server_with_another_key_is_refused(ticket: Ticket) -> None:
    other = Identity.create().fingerprint
    with pytest.raises(WrongFingerprint) as caught:
        connect(changed(ticket, fingerprint=other), config=Config())
    assert (caught.value.wanted, caught.value.found) == (other, ticket.fingerprint)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_wrong_or_missing_token_is_refused(ticket: Ticket, token: str) -> None:
    with pytest.raises(TokenRejected) as caught:
        connect(changed(ticket, token=token), config=Config())
    assert caught.value.port == ticket.port


def test_a_device_that_is_not_there_is_refused_with_the_count(ticket: Ticket) -> None:
    with pytest.raises(NoSuchDevice) as caught:
        connect(ticket.format(), device=99, config=Config())
    assert caught.value.index == 99
    assert caught.value.count == len(list_devices(ticket.format(), config=Config()))


@pytest.mark.parametrize("text", ["gpu-box", "http://gpu-box:4433", "gpuwire://gpu-box:port"])
def test_a_text_that_is_no_ticket_says_so(text: str) -> None:
    with pytest.raises(TicketError):
        connect(text, config=Config())


def test_a_ticket_that_proves_nothing_is_refused(ticket: Ticket) -> None:
    with pytest.raises(TicketError, match="fingerprint"):
        connect(changed(ticket, fingerprint=None), config=Config())


# --- A server that stops or dies -------------------------------------------------------------


def waiting_reads(dev: Device, tensor: Tensor, errors: list[GpuwireError]) -> threading.Thread:
    """Reads again and again, in a thread, until that fails."""
    first = threading.Event()

    def work() -> None:
        try:
            while True:
                dev.read(tensor)
                first.set()
        except GpuwireError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert first.wait(WAIT)
    return thread


@pytest.mark.parametrize(
    ("end", "kind"), [("stop", ServerStopped), ("kill", LinkLost)], ids=["stopped", "killed"]
)
def test_a_server_that_goes_ends_reads_under_way_and_later_uses_alike(
    tmp_path: Path, end: str, kind: type[GpuwireError]
) -> None:
    config = Config(remote=RemoteConfig(heartbeat_seconds=0.3))
    with (
        ServerProcess(
            tmp_path / "server", config="[remote]\nresume_grace_seconds = 0.5\n"
        ) as server,
        connect(server.ticket, config=config) as dev,
    ):
        tensor = plus_one(dev, dev.upload(np.zeros(100_000, dtype="<f4")))
        errors: list[GpuwireError] = []
        thread = waiting_reads(dev, tensor, errors)
        getattr(server, end)()
        thread.join(WAIT)
        assert [type(error) for error in errors] == [kind]
        with pytest.raises(kind):
            dev.read(tensor)
        with pytest.raises(kind):
            plus_one(dev, tensor)
