"""How long the device works on what a block of the program records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from gpuwire.client.pending import Completion
from gpuwire.client.session import Session
from gpuwire.client.waiting import ThreadReply
from gpuwire.errors import ArgumentError
from gpuwire.ids import RequestId, StreamId
from gpuwire.wire.device_tasks import EndProfile, ProfileTime, StartProfile
from gpuwire.wire.messages import Done


class ProfileRequests:
    """The two requests of one block."""

    def __init__(self, session: Session, stream: Callable[[], StreamId], refuse: str) -> None:
        self._session = session
        self._stream = stream
        self._name = refuse
        self._window: RequestId | None = None
        self._of: StreamId | None = None

    def start(self, completion: Completion) -> None:
        """Asks for a window on this thread's stream."""
        self._of = stream = self._stream()
        self._session.recorder.windows.refuse(stream, self._name)
        self._window = self._session.ask(
            lambda request: StartProfile(stream, request), Done, completion
        )

    def end(self, completion: Completion) -> None:
        """Closes it; `completion` gets the `ProfileTime`."""
        stream, window = self._of, self._window
        assert stream is not None and window is not None
        self._session.recorder.windows.refuse(stream, self._name)
        self._session.ask(lambda _: EndProfile(stream, window), ProfileTime, completion, window)


class Profile:
    """The block of `with dev.profile() as p:`; see `Device.profile`."""

    def __init__(
        self, requests: ProfileRequests, answer: Callable[[ThreadReply, str], object]
    ) -> None:
        self._requests = requests
        self._answer = answer
        self._reply: ThreadReply | None = None
        self._time: ProfileTime | None = None

    @property
    def seconds(self) -> float:
        """What the device took. Waits until the block's work has ended. Raises ExecutionError,
        caused by the first failure, where work in the block failed; ArgumentError inside it."""
        return self._found().seconds

    @property
    def by_device(self) -> bool:
        """Whether the device's own timestamps say so; else the system's clock does, which is right
        to 0.5 ms. Waits and raises as `seconds`."""
        return self._found().by_device

    def __enter__(self) -> Profile:
        reply = ThreadReply()
        self._requests.start(reply)
        self._answer(reply, "profile")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reply = ThreadReply()
        self._requests.end(reply)
        self._reply = reply

    def _found(self) -> ProfileTime:
        if self._time is None:
            if self._reply is None:
                raise _too_early()
            found = self._answer(self._reply, "profile")
            assert isinstance(found, ProfileTime)
            self._time = found
        return self._time


class AsyncProfile:
    """The block of `async with dev.profile() as p:`; see `AsyncDevice.profile`."""

    def __init__(
        self,
        requests: ProfileRequests,
        completion: Callable[[], Completion],
        answer: Callable[[Completion, str], Awaitable[object]],
    ) -> None:
        self._requests = requests
        self._completion = completion
        self._answer = answer
        self._reply: Completion | None = None
        self._time: ProfileTime | None = None

    async def seconds(self) -> float:
        """As `Profile.seconds`."""
        return (await self._found()).seconds

    async def by_device(self) -> bool:
        """As `Profile.by_device`."""
        return (await self._found()).by_device

    async def __aenter__(self) -> AsyncProfile:
        reply = self._completion()
        self._requests.start(reply)
        await self._answer(reply, "profile")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reply = self._completion()
        self._requests.end(reply)
        self._reply = reply

    async def _found(self) -> ProfileTime:
        if self._time is None:
            if self._reply is None:
                raise _too_early()
            found = await self._answer(self._reply, "profile")
            assert isinstance(found, ProfileTime)
            self._time = found
        return self._time


def _too_early() -> ArgumentError:
    return ArgumentError("the time of a profiled block is known after the block")
