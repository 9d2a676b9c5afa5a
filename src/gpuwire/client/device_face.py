"""What a device offers besides arrays' operations: kernels of one's own, captured graphs of their
calls, memory and time. `SyncFace` is `Device`'s part of it, `AsyncFace` that of `AsyncDevice`.
"""

from __future__ import annotations

import asyncio
import warnings
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpuwire.client.captured_graphs import AsyncCapturing, CapturedGraph, Capturing
from gpuwire.client.facts import DeviceFacts
from gpuwire.client.kernel_launches import LaunchRecorder
from gpuwire.client.kernels import DirectLaunches, Kernel
from gpuwire.client.pending import Completion
from gpuwire.client.profiles import AsyncProfile, Profile, ProfileRequests
from gpuwire.client.waiting import ThreadReply
from gpuwire.client.wgsl import interface
from gpuwire.ids import StreamId
from gpuwire.wire.device_tasks import (
    AskMemory,
    CleanMemory,
    MemoryFreed,
    MemoryReport,
    MemoryReported,
    SetAllocationMode,
)

LOOP_LIMIT = 65_535
"""llvmpipe ends the loops of an invocation after so many rounds in all."""


class _Face(DeviceFacts):
    """What both faces have in common: what does not wait."""

    @abstractmethod
    def _stream(self) -> StreamId:
        """The stream of this thread."""

    @abstractmethod
    def _make_room(self) -> None:
        """Called before work is recorded: sees that not too much is unsent, by waiting or with an
        error."""

    def kernel(
        self,
        source: str,
        entry_point: str = "main",
        workgroup_size: int | tuple[int, ...] | None = None,
        *,
        name: str | None = None,
    ) -> Kernel:
        """A kernel of one's own, in WGSL, for arrays of this device.

        Array i of a call is `@group(0) @binding(i) var<storage, read>` or `read_write` in the
        source, in NumPy's layout: row-major, a bool or int8 one byte. Numbers are 32-bit words: the
        source reads word i as `params[i / 4][i % 4]`, a u32 (`bitcast<f32>(params[0].x)`), and does
        not declare `params`. `workgroup_size` need not be given where the source says it in
        numbers. `name` is for errors; by default the entry point's.

        Indices out of bounds touch nothing but the same array. On a software adapter all loops of
        one invocation together end after 65,535 rounds, silently, nested ones too, and a warning
        says so: spread longer work over invocations or calls.

        Raises ArgumentError for a source whose interface cannot be bound; whether it compiles is
        found out on the device. See `Kernel` for calling it.
        """
        found = interface(source, entry_point, workgroup_size)
        if self.info.kind == "cpu" and found.loops:
            warnings.warn(
                f"{self.info.name} is a software adapter: it ends the loops of an invocation after "
                f"{LOOP_LIMIT:,} rounds in all, nested ones too, without a word; spread longer "
                "work over invocations or calls",
                RuntimeWarning,
                stacklevel=2,
            )
        return Kernel(self._session, source, entry_point, found, name or entry_point, self._target)

    def _target(self) -> LaunchRecorder:
        """Where a launch of this thread goes now."""
        stream = self._stream()
        window = self._session.recorder.windows.open.get(stream)
        return window or DirectLaunches(self._session, stream, self._make_room)

    def _refuse_captured(self, name: str) -> None:
        """Raises CaptureError if this thread is capturing."""
        self._session.recorder.windows.refuse(self._stream(), name)

    @contextmanager
    def persistent_memory(self) -> Iterator[None]:
        """What this thread's work allocates in the block is kept in buckets of exact sizes, to be
        used again by allocations of the same size: for weights and other arrays that live long.
        Without effect where the server's `memory.persistent_memory` is `disabled`."""
        stream = self._stream()
        self._set_mode(stream, persistent=True)
        try:
            yield
        finally:
            self._set_mode(stream, persistent=False)

    def _set_mode(self, stream: StreamId, *, persistent: bool) -> None:
        recorder = self._session.recorder
        recorder.windows.refuse(stream, "persistent_memory")
        recorder.add(SetAllocationMode(stream, persistent))

    def _captured_graph(self) -> CapturedGraph:
        return CapturedGraph(self._session, self._stream, self._make_room)

    def _ask_memory(self, completion: Completion) -> None:
        self._refuse_captured("memory_report")
        self._tell_of_the_dead()
        stream = self._stream()
        self._session.ask(lambda request: AskMemory(stream, request), MemoryReported, completion)

    def _ask_cleanup(self, completion: Completion) -> None:
        self._refuse_captured("memory_cleanup")
        self._tell_of_the_dead()
        self._session.ask(CleanMemory, MemoryFreed, completion)

    def _tell_of_the_dead(self) -> None:
        """Arrays that have died are told of at the end of a batch, so the request for memory must
        be in the next one."""
        self._session.recorder.flush()


class SyncFace(_Face):
    """The part of `Device`."""

    @abstractmethod
    def _answer(self, reply: ThreadReply, what: str) -> Any:
        """The answer, once it has come."""

    @abstractmethod
    def sync(self) -> None:
        """See `Device.sync`."""

    def synchronize(self) -> None:
        """`sync`, by the name that array libraries use."""
        self.sync()

    def memory_report(self) -> MemoryReport:
        """The device memory behind this thread's work, pool by pool, and this session's share.
        Waits for the server."""
        reply = ThreadReply()
        self._ask_memory(reply)
        answer = self._answer(reply, "memory report")
        assert isinstance(answer, MemoryReported)
        return answer.report

    def memory_cleanup(self) -> int:
        """Waits for this session's work, then gives what nothing holds back to the driver; the
        number of bytes. Useful before another program wants the device: what is kept makes
        allocations cheap."""
        reply = ThreadReply()
        self._ask_cleanup(reply)
        answer = self._answer(reply, "memory cleanup")
        assert isinstance(answer, MemoryFreed)
        return answer.size

    def profile(self) -> Profile:
        """`with dev.profile() as p:` times what this thread records in the block, on the device;
        `p.seconds` waits for the number.

        Entering waits for what was recorded before, so that it does not count. The time runs from
        the first of the block's work to its last, pauses of the device included, and work of other
        sessions that share the stream there. A failure in the block spoils the number: `p.seconds`
        raises it.
        """
        return Profile(
            ProfileRequests(self._session, self._stream, "profile"),
            lambda reply, what: self._answer(reply, what),
        )

    def capture(self) -> Capturing:
        """`with dev.capture() as graph:` records this thread's calls of kernels instead of running
        them, for `graph.replay()`. See `CapturedGraph`.

        Everything else that the thread asks of the device in the block raises CaptureError by its
        name and spoils the graph, and so does a kernel that does not compile: then the block's end
        raises CaptureError. The end waits for the server's word.
        """
        return Capturing(
            self._captured_graph(), self._stream, lambda reply, what: self._answer(reply, what)
        )


class AsyncFace(_Face):
    """The part of `AsyncDevice`."""

    @abstractmethod
    async def _answer(self, reply: Awaitable[Any], what: str) -> Any:
        """The answer, once it has come."""

    @abstractmethod
    async def sync(self) -> None:
        """See `AsyncDevice.sync`."""

    async def synchronize(self) -> None:
        """`sync`, by the name that array libraries use."""
        await self.sync()

    async def memory_report(self) -> MemoryReport:
        """As `Device.memory_report`."""
        answer = await self._asked(self._ask_memory, "memory report")
        assert isinstance(answer, MemoryReported)
        return answer.report

    async def memory_cleanup(self) -> int:
        """As `Device.memory_cleanup`."""
        answer = await self._asked(self._ask_cleanup, "memory cleanup")
        assert isinstance(answer, MemoryFreed)
        return answer.size

    def profile(self) -> AsyncProfile:
        """`async with dev.profile() as p:`, then `await p.seconds()`. As `Device.profile`."""
        requests = ProfileRequests(self._session, self._stream, "profile")
        return AsyncProfile(requests, _future, self._answer_of)

    def capture(self) -> AsyncCapturing:
        """`async with dev.capture() as graph:`, then `graph.replay()`. As `Device.capture`; the
        window is of the device, which has one stream."""
        return AsyncCapturing(self._captured_graph(), self._stream(), _future, self._answer_of)

    async def _asked(self, ask: Callable[[Completion], None], what: str) -> Any:
        reply = _future()
        ask(reply)
        return await self._answer_of(reply, what)

    async def _answer_of(self, reply: Completion, what: str) -> Any:
        assert isinstance(reply, asyncio.Future)
        return await self._answer(reply, what)


def _future() -> Completion:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return future
