"""A session over real QUIC with a server that does what the test says."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from client.scripted_server import Running, ScriptedServer, running
from gpuwire.client import Device, aio, connect, list_devices
from gpuwire.client.session import HELD_BYTES_HIGH
from gpuwire.config import Config, RemoteConfig
from gpuwire.errors import (
    ArgumentError,
    BacklogFull,
    DeviceClosed,
    DeviceLost,
    ExecutionError,
    LinkLost,
    MalformedMessage,
    RequestTimeout,
    ServerStopped,
    UnexpectedMessage,
    UnsupportedDType,
    UploadTooLarge,
)
from gpuwire.ids import RequestId, SessionId
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS
from gpuwire.wire.messages import (
    Close,
    Done,
    DropTensors,
    Failed,
    ReadTensor,
    RegisterTensor,
    Reply,
    RunOperation,
    SessionLimits,
    SyncStream,
    Task,
)
from gpuwire.wire.records import to_record

ADD = OPERATIONS["add"]
VALUES = np.arange(6, dtype="<f4").reshape(2, 3)
WAIT = 20.0


@pytest.fixture
def there() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def dev(there: Running) -> Iterator[Device]:
    with connect(there.ticket, config=Config()) as device:
        yield device


def steered(server: Running, step: object) -> None:
    """Runs a coroutine of the test on the server's thread."""
    server.loop.run(step)  # type: ignore[arg-type]


# --- The regular way -------------------------------------------------------------------------


def test_values_come_back_as_they_went(dev: Device) -> None:
    tensor = dev.upload(VALUES)
    again = dev.read(tensor)
    assert again.dtype == np.float32
    assert np.array_equal(again, VALUES)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_no_elements_and_no_dimensions_are_fine(dev: Device, shape: tuple[int, ...]) -> None:
    values = np.ones(shape, dtype="<i4")
    values.flags.writeable = False
    again = dev.read(dev.upload(values))
    assert again.shape == shape
    assert np.array_equal(again, values)


def test_what_is_recorded_goes_out_by_itself_when_nothing_follows(
    there: Running, dev: Device
) -> None:
    arrived = threading.Event()

    def answer(task: Task) -> Reply | None:
        if isinstance(task, RunOperation):
            arrived.set()
        return there.server.usual_answer(task)

    there.server.answer = answer
    tensor = dev.upload(VALUES)
    result = dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES)
    assert arrived.wait(WAIT)
    del result


def test_four_tasks_make_a_frame(there: Running, dev: Device) -> None:
    kept = [dev.upload(VALUES) for _ in range(4)]
    for _ in range(8):
        kept.append(dev.record(ADD, (kept[0], kept[1]), NO_ATTRIBUTES))
    dev.sync()
    assert 4 in there.server.frames
    assert max(there.server.frames) == 4


def test_the_death_of_a_tensor_reaches_an_idle_server(there: Running, dev: Device) -> None:
    dropped = threading.Event()
    there.server.answer = lambda task: dropped.set() if isinstance(task, DropTensors) else None
    tensor = dev.upload(VALUES)
    del tensor
    assert dropped.wait(WAIT)


def test_each_thread_has_a_stream_of_its_own(there: Running, dev: Device) -> None:
    tensor = dev.upload(VALUES)
    made = []

    def work() -> None:
        for _ in range(3):
            made.append(dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES))
            dev.flush()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    made.append(dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES))
    dev.sync()
    streams = [task.stream for task in there.server.tasks if isinstance(task, RunOperation)]
    assert len(set(streams[:3])) == 1
    assert streams[3] != streams[0]


def test_the_facts_of_a_device(there: Running, dev: Device) -> None:
    assert dev.info.name == "scripted"
    assert "scripted" in repr(dev) and dev.address in repr(dev)
    assert dev.default_float.name == "float32"
    assert dev.default_int.name == "int32"
    assert dev.path.address == dev.address
    assert 0 < dev.ping() < WAIT
    assert there.server.hello is not None
    assert "pid" in there.server.hello.client
    assert [info.name for info in list_devices(there.ticket, config=Config())] == ["scripted"]


def test_stats_count_what_went_out(there: Running, dev: Device) -> None:
    dev.read(dev.upload(VALUES))
    stats = dev.stats()
    assert (stats.frames_sent, stats.replies_pending) == (len(there.server.frames), 0)
    assert stats.tasks_sent == sum(there.server.frames) >= 2
    assert stats.bytes_sent > VALUES.nbytes < stats.bytes_received


# --- Uploads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [5_000, 300_000], ids=["snapshot", "in place"])
def test_a_later_change_of_the_source_does_not_change_the_tensor(
    there: Running, dev: Device, elements: int
) -> None:
    values = np.arange(elements, dtype="<f4")
    wanted = values.tobytes()
    tensor = dev.upload(values)
    values[:] = -1
    dev.sync()
    register = next(task for task in there.server.tasks if isinstance(task, RegisterTensor))
    assert (register.tensor, register.data) == (tensor.id, None)
    dev.close()  # Waits for uploads under way.
    assert there.server.uploads[register.request] == wanted


def test_an_upload_that_waits_ends_with_the_session(there: Running, dev: Device) -> None:
    async def stop_reading() -> None:
        there.server.reads_bulk.clear()

    async def close() -> None:
        there.server.send(Close(to_record(DeviceLost("the driver died", device=0))))

    steered(there, stop_reading())
    caught: list[BaseException] = []

    def upload() -> None:
        try:
            dev.upload(np.zeros(10_000_000, dtype="<f4"))  # More than the windows hold.
        except DeviceLost as error:
            caught.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    while not there.server.tasks:
        dev.ping()
    steered(there, close())
    thread.join(WAIT)
    assert [str(error) for error in caught] == ["the driver died"]


def test_uploads_that_cannot_be_are_refused_here(there: Running) -> None:
    limits = SessionLimits(1 << 25, 1000, 0, 0.0)
    with running(ScriptedServer(limits=limits)) as small, connect(small.ticket) as dev:
        with pytest.raises(UploadTooLarge, match=r"1004 bytes.*at most 1000"):
            dev.upload(np.zeros(251, dtype="<f4"))
        with pytest.raises(UnsupportedDType, match="use float32"):
            dev.upload(np.zeros(2, dtype="<f8"))
        with pytest.raises(ArgumentError, match="little-endian"):
            dev.upload(np.zeros(2, dtype=">f4"))
        with pytest.raises(ArgumentError, match="contiguous"):
            dev.upload(np.zeros((4, 4), dtype="<f4").T[1:])
        assert np.array_equal(dev.read(dev.upload(VALUES)), VALUES)


def test_a_server_that_does_not_read_makes_recording_wait_and_then_go_on(
    there: Running, dev: Device
) -> None:
    async def stop_reading() -> None:
        there.server.reads.clear()

    async def read_on() -> None:
        there.server.reads.set()

    values = np.zeros(4000, dtype="<f4")
    dev.read(dev.upload(values))
    steered(there, stop_reading())
    uploads = 4000  # 64 MB of tasks, more than windows, kept frames and backlog hold.
    recorded = 0

    def record() -> None:
        nonlocal recorded
        for _ in range(uploads):
            dev.upload(values)
            recorded += 1

    thread = threading.Thread(target=record)
    thread.start()
    while dev._session.room.is_set():
        thread.join(0.01)
    held = dev._session.held_bytes
    assert held < HELD_BYTES_HIGH + 200_000
    assert thread.is_alive()
    steered(there, read_on())
    thread.join(WAIT)
    assert recorded == uploads
    dev.sync()
    assert sum(isinstance(task, RegisterTensor) for task in there.server.tasks) == uploads + 1


# --- Failures --------------------------------------------------------------------------------


def test_a_failure_names_operation_place_and_line_and_has_the_devices_error_as_cause(
    there: Running, dev: Device
) -> None:
    def answer(task: Task) -> Reply | None:
        if not isinstance(task, ReadTensor):
            return there.server.usual_answer(task)
        run = next(task for task in there.server.tasks if isinstance(task, RunOperation))
        error = ExecutionError("add failed on the device", operation="add", place=2)
        error.__cause__ = DeviceLost("out of luck")
        return Failed(task.request, to_record(error), run.operation.location)

    there.server.answer = answer
    tensor = dev.upload(VALUES)
    where = f"{__file__}:{sys._getframe().f_lineno + 1}"
    result = dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES)
    with pytest.raises(ExecutionError) as caught:
        dev.read(result)
    error = caught.value
    assert (error.operation, error.place, error.location) == ("add", 2, where)
    assert where in str(error)
    assert isinstance(error.__cause__, DeviceLost)


def test_an_answer_that_does_not_come_is_a_timeout_and_the_session_goes_on(there: Running) -> None:
    late: list[RequestId] = []

    def answer(task: Task) -> Reply | None:
        if isinstance(task, ReadTensor) and not late:
            late.append(task.request)
            return None
        return there.server.usual_answer(task)

    async def answer_late() -> None:
        there.server.reply(Done(RequestId(late[0] + 1)))

    there.server.answer = answer
    config = Config(remote=RemoteConfig(request_timeout_seconds=0.2))
    with connect(there.ticket, config=config) as dev:
        tensor = dev.upload(VALUES)
        with pytest.raises(RequestTimeout, match=r"read was not answered within 0.2 s") as caught:
            dev.read(tensor)
        assert caught.value.seconds == 0.2
        assert np.array_equal(dev.read(tensor), VALUES)


def test_the_servers_last_word_ends_every_wait_and_every_later_use(
    there: Running, dev: Device
) -> None:
    there.server.answer = lambda task: None
    tensor = dev.upload(VALUES)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            dev.read(tensor)
        except ServerStopped as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    while sum(isinstance(task, ReadTensor) for task in there.server.tasks) < 3:
        dev.ping()

    async def stop() -> None:
        there.server.send(Close(to_record(ServerStopped("maintenance at noon"))))

    steered(there, stop())
    for thread in threads:
        thread.join(WAIT)
    assert [str(error) for error in errors] == ["maintenance at noon"] * 3
    for use in (
        lambda: dev.read(tensor),
        lambda: dev.upload(VALUES),
        lambda: dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES),
        dev.sync,
        dev.ping,
    ):
        with pytest.raises(ServerStopped, match="maintenance at noon"):
            use()
    assert not dev.closed
    assert "ServerStopped" in repr(dev)


def test_a_connection_that_the_server_drops_is_a_lost_link(there: Running, dev: Device) -> None:
    there.server.answer = lambda task: there.server.connection.close(7, "bye")  # type: ignore[union-attr,func-returns-value]
    with pytest.raises(LinkLost, match="bye"):
        dev.sync()


def test_a_silent_server_is_noticed_by_our_own_heartbeat(there: Running) -> None:
    there.server.answers_heartbeats = False
    there.server.answer = lambda task: None
    config = Config(remote=RemoteConfig(heartbeat_seconds=0.1))
    with connect(there.ticket, config=config) as dev:
        with pytest.raises(LinkLost, match="silent for") as caught:
            dev.sync()
        assert caught.value.seconds is not None and caught.value.seconds >= 0.3
        with pytest.raises(LinkLost):
            dev.ping()


def test_heartbeats_keep_an_idle_session(there: Running) -> None:
    config = Config(remote=RemoteConfig(heartbeat_seconds=0.02))
    with connect(there.ticket, config=config) as dev:
        for _ in range(50):
            dev.ping()
            threading.Event().wait(0.002)  # Idle for more than the deadline in all.
        assert np.array_equal(dev.read(dev.upload(VALUES)), VALUES)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(Done(RequestId(999)), UnexpectedMessage), (None, MalformedMessage)],
    ids=["answer to nothing", "wrong answer"],
)
def test_a_server_that_breaks_the_protocol_is_told_and_left(
    there: Running, dev: Device, reply: Reply | None, kind: type[Exception]
) -> None:
    tensor = dev.upload(VALUES)
    there.server.answer = lambda task: (
        (reply or Done(task.request)) if isinstance(task, ReadTensor) else None
    )
    with pytest.raises(kind):
        dev.read(tensor)

    async def told() -> None:
        async with asyncio.timeout(WAIT):
            await there.server.closed_by_client.wait()

    steered(there, told())


# --- Closing ---------------------------------------------------------------------------------


def test_closing_sends_what_is_recorded_tells_the_server_and_can_be_done_twice(
    there: Running,
) -> None:
    dev = connect(there.ticket, config=Config())
    tensor = dev.upload(VALUES)
    result = dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES)
    dev.close()
    dev.close()

    async def told() -> None:
        async with asyncio.timeout(WAIT):
            await there.server.closed_by_client.wait()

    steered(there, told())
    assert any(isinstance(task, RunOperation) for task in there.server.tasks)
    assert dev.closed
    assert dev.stats().frames_sent == 1
    for use in (
        lambda: dev.read(result),
        lambda: dev.record(ADD, (tensor, tensor), NO_ATTRIBUTES),
        dev.sync,
        dev.ping,
    ):
        with pytest.raises(DeviceClosed, match="closed; connect again"):
            use()


def test_closing_ends_the_waits_of_other_threads(there: Running) -> None:
    there.server.answer = lambda task: None
    dev = connect(there.ticket, config=Config())
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            dev.sync()
        except DeviceClosed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not any(isinstance(task, SyncStream) for task in there.server.tasks):
        dev.ping()
    dev.close()
    thread.join(WAIT)
    assert len(errors) == 1


# --- The asyncio face ------------------------------------------------------------------------


def test_the_asyncio_face_does_the_same(there: Running) -> None:
    large = np.arange(300_000, dtype="<f4")

    async def program() -> None:
        async with aio.connect(there.ticket, config=Config()) as dev:
            tensor = dev.upload(VALUES)
            arrays = await asyncio.gather(*(dev.read(tensor) for _ in range(200)))
            assert all(np.array_equal(array, VALUES) for array in arrays)
            copied = dev.upload(large)
            in_place = await dev.upload_in_place(large)
            await dev.sync()
            await dev.flush()
            assert await dev.ping() > 0
            assert dev.path.address == dev.address
            assert dev.stats().tasks_sent >= 204
            assert {copied.type, in_place.type} == {copied.type}
        with pytest.raises(DeviceClosed):
            await dev.read(tensor)

    asyncio.run(program())
    assert list(there.server.uploads.values()) == [large.tobytes()] * 2


def test_awaiting_connect_gives_a_device_to_close(there: Running) -> None:
    async def program() -> None:
        dev = await aio.connect(there.ticket, config=Config())
        assert np.array_equal(await dev.read(dev.upload(VALUES)), VALUES)
        await dev.close()
        await dev.close()
        assert dev.closed

    asyncio.run(program())


def test_a_cancelled_read_leaves_the_session_whole(there: Running) -> None:
    async def program() -> None:
        async with aio.connect(there.ticket, config=Config()) as dev:
            tensor = dev.upload(VALUES)
            read = asyncio.ensure_future(dev.read(tensor))
            await dev.flush()
            read.cancel()
            assert np.array_equal(await dev.read(tensor), VALUES)

    asyncio.run(program())


def test_recording_for_ever_without_awaiting_is_refused_at_last(
    there: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "HELD_BYTES_MAX", 1_000_000)

    async def program() -> None:
        async with aio.connect(there.ticket, config=Config()) as dev:
            values = np.zeros(4000, dtype="<f4")
            with pytest.raises(BacklogFull, match=r"await dev\.flush"):
                for _ in range(1000):
                    dev.upload(values)
            await dev.flush()
            dev.upload(values)

    asyncio.run(program())


def test_a_session_has_the_id_that_the_server_gave(dev: Device) -> None:
    assert dev._session.id == SessionId(bytes(16))
